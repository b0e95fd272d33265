"""The app's texts in Chinese, by the English that stands in the code."""

ZH: dict[str, str] = {}
