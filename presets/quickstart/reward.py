"""The quickstart's reward, as a verl user writes one: 1 for the right sum, else 0."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    right = solution_str.strip() == ground_truth
    return {"score": float(right), "acc": right}
