"""MLflow, on a server or in a database file."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlctl.common import packages
from rlctl.common.errors import MissingDependency
from rlctl.config.sections.output import MlflowTracker as Settings
from rlctl.runtime.tracking.interface import COLUMNS, RunInfo, ShownResponse, flatten, kept_id, rows

MAX_PARAMETERS, MAX_VALUE_CHARACTERS, MAX_NAME_CHARACTERS = 100, 6000, 250
"""What MLflow takes in one request, in one value, and in one name."""
_NO_NAME = re.compile(r"[^/\w.\- :]")
"""What MLflow takes in no name."""


def name_for(name: str) -> str:
    """The name of a metric or setting as MLflow takes it; ``mean@8`` is ``mean_at_8``, as in verl (verl/utils/tracking.py)."""
    return _NO_NAME.sub("_", re.sub(r"/+", "/", name.replace("@", "_at_")))[:MAX_NAME_CHARACTERS]


class MlflowTracker:
    """One MLflow run; launching a run again goes on with it.

    A folder as address means a SQLite file in it: MLflow's plain folders are out of maintenance.

    Raises:
        MissingDependency: mlflow is not installed.
    """

    def __init__(self, settings: Settings, info: RunInfo) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise MissingDependency(
                "tracking with mlflow needs the package mlflow, which is not installed", hint=packages.install("mlflow")
            ) from error
        if settings.username:
            os.environ["MLFLOW_TRACKING_USERNAME"] = settings.username
        if settings.password:
            os.environ["MLFLOW_TRACKING_PASSWORD"] = settings.password
        info.folder.mkdir(parents=True, exist_ok=True)
        uri = tracking_uri(settings.uri, info.folder)
        self._client = MlflowClient(tracking_uri=uri)
        self._artifacts = _artifacts_beside(uri)
        self._run_id = self._open_run(info)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step in one request."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(
            self._run_id, metrics=[Metric(name_for(name), value, now, step) for name, value in metrics.items()]
        )

    def log_responses(self, name: str, responses: Sequence[ShownResponse], *, step: int) -> None:
        """Keep a table as an artifact, ``<name>/step-<step>.json``."""
        lines = [dict(zip(COLUMNS, row, strict=True)) for row in rows(responses, step)]
        text = json.dumps(lines, ensure_ascii=False, indent=1)
        self._client.log_text(self._run_id, text, f"{name}/step-{step}.json")

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send the settings as parameters, which MLflow never changes: those a resumed run has already stay."""
        from mlflow.entities import Param

        known = self._client.get_run(self._run_id).data.params
        settings = {name_for(key): str(value)[:MAX_VALUE_CHARACTERS] for key, value in flatten(config).items()}
        params = [Param(key, value) for key, value in settings.items() if key not in known]
        for start in range(0, len(params), MAX_PARAMETERS):
            self._client.log_batch(self._run_id, params=params[start : start + MAX_PARAMETERS])

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run_id)

    def _open_run(self, info: RunInfo) -> str:
        if (info.folder / "run_id").exists():
            run_id = kept_id(info.folder, "")
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        experiment = self._client.get_experiment_by_name(info.project)
        made = None if experiment else self._client.create_experiment(info.project, self._artifacts)
        experiment_id = made or experiment.experiment_id
        tags = {"group": info.group} if info.group else {}
        return kept_id(info.folder, self._client.create_run(experiment_id, run_name=info.name, tags=tags).info.run_id)


def tracking_uri(uri: str | None, folder: Path) -> str:
    """Return the address as MLflow takes it: a URL as it is, a folder (by default ``folder``) as a SQLite file in it."""
    if uri and ("://" in uri or uri in ("databricks", "uc")):
        return uri
    place = Path(uri).expanduser().resolve() if uri else folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{place}/mlflow.db"


def _artifacts_beside(uri: str) -> str | None:
    """Where a database file's artifacts go, which MLflow would else put into the current folder; None is the server's choice."""
    file = uri.removeprefix("sqlite:///")
    return None if file == uri else (Path(file).parent / "artifacts").as_uri()
