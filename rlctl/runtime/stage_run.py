"""What each line of the loop does: one stage with its roles, its data, its clock and its place in the run folder."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.planning.plan import StagePlan
from rlctl.runtime.auxiliary_engines import Watched
from rlctl.runtime.checkpoints.checkpoint import Checkpoints, Saved, replace_folder, verified
from rlctl.runtime.checkpoints.inputs import REFUSED, Change, Inputs, accept, changes, check_data
from rlctl.runtime.checkpoints.resume_path import describe_resume_diff, terms
from rlctl.runtime.evaluation.evaluation import Evaluator
from rlctl.runtime.experience.batch_builders import BatchBuilder, BuiltBatch
from rlctl.runtime.experience.buffered import BufferWriter
from rlctl.runtime.experience.explore import GroupSource
from rlctl.runtime.profiling.steps import Meter
from rlctl.runtime.reporting.events import Events
from rlctl.runtime.reporting.metrics import staleness_metrics
from rlctl.runtime.reporting.sample_files import EVALUATION, STEP, SampleFiles
from rlctl.runtime.roles import Policy, RolloutEngines, ValueModel
from rlctl.runtime.stopping import StopSwitch
from rlctl.runtime.tracking.interface import ShownResponse
from rlctl.runtime.tracking.safe import SafeTracker
from rlctl.runtime.types import Sample, trajectories_of

SAME = {
    "evaluation": "evaluations before and after cannot be compared; training is not affected",
    "code": "rewards and batches before and after may differ; put the old code back to continue the same run",
    "models": "trained weights come from the checkpoint; all other weights and tokenizers are the new ones",
    "settings": "the run continues with the new value; put the old one back to continue the same run",
    "packages": "results before and after may differ; install the old version to continue the same run",
}
"""What a change means for a run that is resumed, by kind."""
OF_ANOTHER_RUN = ("data", "code", "models")
"""What is compared with the run of ``checkpoint.resume_path``, besides its settings."""
ENDLESS = 1_000_000_000
"""Steps of a stage that ends when its buffer is dry."""


@dataclass(frozen=True, slots=True)
class Clock:
    """When things happen, in steps; None is never."""

    total_steps: int
    evaluate_every: int | None
    save_every: int | None
    evaluate_at_start: bool
    evaluate_at_end: bool
    """After the last step, where there is an interval."""
    save_last: bool

    @property
    def known_steps(self) -> int | None:
        """Steps of the stage as people are told them; None where it ends when its buffer is dry."""
        return None if self.total_steps == ENDLESS else self.total_steps

    def evaluation_due(self, step: int) -> bool:
        """Whether held-out prompts are answered after a step."""
        if self.evaluate_every is None:
            return False
        return step % self.evaluate_every == 0 or (self.evaluate_at_end and step == self.total_steps)

    def save_due(self, step: int) -> bool:
        """Whether a checkpoint is written after a step."""
        due = self.save_every is not None and step % self.save_every == 0
        return due or (self.save_last and step == self.total_steps)


@dataclass
class Progress:
    """What a checkpoint holds of the stage beside weights and data position."""

    step: int = 0
    """The last step that is over."""
    weight_version: int = 0
    """Steps that the policy was trained for; every response carries the version that drew it."""
    tokens: int = 0
    """Tokens of all training samples so far."""
    responses: int = 0
    """Training samples so far."""
    evaluated: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metrics of the first and the last evaluation."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by phase since the stage began."""

    def add_seconds(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


@dataclass
class StageRun:
    """One stage under way."""

    config: Config
    plan: StagePlan
    clock: Clock
    source: BatchBuilder
    policy: Policy | None
    """None where nothing is trained (evaluate_only)."""
    rollout: RolloutEngines | None
    evaluator: Evaluator | None
    checkpoints: Checkpoints
    events: Events
    trackers: Sequence[SafeTracker]
    stop: StopSwitch
    export_folder: Path
    meter: Meter
    old_is_current: bool
    """Whether the log-probs of the old policy are those at hand when a step is trained on."""
    critic: ValueModel | None = None
    groups: GroupSource | None = None
    """What ``source`` takes its groups from, where it takes any."""
    rollout_version: int | None = None
    """Of the weights that the rollout engines have."""
    _updating: threading.Lock = field(default_factory=threading.Lock)
    """Held while the policy's weights are not those of ``progress.weight_version``."""
    progress: Progress = field(default_factory=Progress)
    finished: bool = False
    saved_step: int | None = None
    """The last one after which a checkpoint was begun here."""
    auxiliary: Watched | None = None
    """The engines of auxiliary models; None if the run serves none."""
    sample_files: SampleFiles | None = None
    """None of a run that shows no responses."""
    inputs: Inputs = field(default_factory=dict)
    """What the stage is made from."""
    accept_changes: bool = False
    """Whether it goes on though its training data was changed since the checkpoint."""

    def start(self) -> None:
        """Take up the newest whole checkpoint where there is one; bring the engines to the policy's weights."""
        self._restore()
        done = self.progress.step
        if self.sample_files is not None:
            self.sample_files.begin(done)
        self.events.emit("stage_started", total_steps=self.clock.known_steps, step=done, notes=self.plan.notes)
        self.sync(done)
        if done == 0 and self.clock.evaluate_at_start:
            self.evaluate(0)

    def _restore(self) -> None:
        saved = self._saved()
        if saved is None:
            return
        own = saved.folder.parent == self.checkpoints.folder
        if own:
            self._compare_inputs(saved)
        if self.policy is not None:
            self.policy.load(saved.folder / "policy")
        if self.critic is not None:
            if not (saved.folder / "critic").is_dir():
                raise RunError(
                    said(
                        "the checkpoint {folder} has no critic, but {choice} needs one",
                        folder=saved.folder,
                        choice=self.config.algorithm.advantage.choice,
                    ),
                    hint="resume from a checkpoint with a critic, or start a new run from its weights with model.path",
                )
            self.critic.load(saved.folder / "critic")
        self.source.restore(saved.controller["data"])
        self.progress = Progress(**saved.controller["progress"])
        self.saved_step = self.progress.step
        self.events.emit("resumed", step=self.progress.step, folder=str(saved.folder))
        if not own:
            told = describe_resume_diff(self.config, saved.step, saved.controller.get("terms"))
            told += "".join(f"\n  {each}" for each in self._changes(saved) if each.kind in OF_ANOTHER_RUN)
            hint = "train.lr_scheduler.restore_from_checkpoint=false uses this config's schedule"
            self.events.advise(told, hint)
        left = left_out(self.config.checkpoint.load_contents, saved.controller.get("contents", EVERYTHING))
        if left:
            message = said(
                "{names} could not be restored: this run is not an exact continuation", names=" and ".join(left)
            )
            self.events.advise(
                message, "to restore it too, list it in checkpoint.save_contents and checkpoint.load_contents"
            )
        if self.config.checkpoint.delete_after_load and not self.checkpoints.forget(saved):
            message = said("{folder} has no other complete copy, so rlctl keeps it", folder=saved.folder)
            self.events.advise(
                message, "set checkpoint.remote to keep another copy, or checkpoint.delete_after_load to false"
            )

    def _changes(self, saved: Saved) -> list[Change]:
        return changes(saved.controller.get("inputs", {}), self.inputs, self.config)

    def _compare_inputs(self, saved: Saved) -> None:
        """Say what is not as it was when the checkpoint was written.

        Raises:
            RunError: the training data is another, and nobody accepted that.
        """
        accepted = check_data(saved, self.inputs, self.config, accept=self.accept_changes)
        if accepted:
            accept(saved, self.inputs, accepted)
            listed = [str(each) for each in accepted]
            self.events.emit("changes_accepted", step=saved.step, changes=listed)
        for change in self._changes(saved):
            if change.kind != REFUSED:
                self.events.advise(
                    said("changed since the checkpoint of step {step}: {change}", step=saved.step, change=change),
                    SAME[change.kind],
                )

    def _saved(self) -> Saved | None:
        """The checkpoint to go on from, None to begin; the run's own come before ``checkpoint.resume_path``."""
        chosen = self.config.checkpoint
        if chosen.resume == "never":
            return None
        saved = self.checkpoints.newest()
        if saved is None and chosen.resume == "path" and chosen.resume_path is not None:
            path = Path(chosen.resume_path).expanduser()
            saved = verified(path)
            if saved is None:
                raise RunError(
                    said("{path} is not a complete checkpoint", path=path),
                    hint="set checkpoint.resume_path to a folder step-NNNNNN of a run's checkpoints",
                )
        resumed = said("resuming from step {step}", step=saved.step) if saved else "starting from the first step"
        for folder in self.checkpoints.damaged():
            message = said("{folder} is damaged or incomplete; {resumed}", folder=folder, resumed=resumed)
            self.events.advise(message, "it can be deleted")
        return saved

    def remaining_steps(self) -> Iterator[int]:
        """Steps not yet taken; the first is 1."""
        for step in range(self.progress.step + 1, self.clock.total_steps + 1):
            self.meter.begin(step)
            try:
                if self.groups is not None and not self.groups.more(step, self.phase):
                    break
                yield step
            finally:
                self.meter.end(step)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase of the step, and tell watchers that it began."""
        began = time.perf_counter()
        self.events.emit("phase", step=self.progress.step, name=name)
        with self.meter.phase(name):
            yield
        self.progress.add_seconds(name, time.perf_counter() - began)

    def roll_out(self, step: int) -> Any:
        """Groups of responses with their rewards; without rollout, the step's sequences or pairs of the data set."""
        return self.source.take(step, self.phase)

    def estimate(self, step: int, groups: Any) -> tuple[Sequence[Sample], dict[str, float]]:
        """The samples to train on in this step, with log-probs, values and advantages, and their metrics."""
        built: BuiltBatch = self.source.build(groups, step, self.phase)
        if built.shown and self.config.rollout.log_responses:
            self.write_samples(STEP, step, built.shown)
            self.events.emit("samples", step=step, beside={"samples": built.shown})
            self.show("rollout/responses", shown_responses(built.shown), step)
        return built.samples, built.metrics | staleness_metrics(built.versions, self.progress.weight_version)

    def write_samples(self, kind: str, step: int, groups: Sequence[dict[str, Any]]) -> None:
        """Put responses that people are shown into the run folder."""
        if self.sample_files is not None and groups:
            self.sample_files.write(kind, step, groups)

    def train(self, step: int, samples: Sequence[Sample]) -> dict[str, float]:
        """All optimizer steps of this step; returns their metrics. In its warm-up only the critic is trained."""
        metrics: dict[str, float] = {}
        if self.auxiliary is not None:
            self.auxiliary.rest()
        if self.critic is not None:
            with self.phase("train_critic"):
                metrics |= self.critic.train(samples, step=step)
        if self.policy is not None and step > self.config.schedule.critic_warmup_steps:
            with self._updating:
                with self.phase("train"):
                    metrics |= self.policy.train(samples, step=step, old_is_current=self.old_is_current)
                self.progress.weight_version += 1
            if self.groups is not None:
                self.groups.trained(self.progress.weight_version)
        self.progress.tokens += sum(map(len, samples))
        self.progress.responses += len(set(trajectories_of(samples)))
        return metrics

    def sync_due(self, step: int) -> bool:
        """Whether the rollout engines get the weights of this step: where further responses are drawn by them."""
        return self.groups is not None and self.groups.sync_due(step)

    def sync(self, step: int) -> None:
        """Bring the rollout engines to the weights of this step."""
        if self.rollout is None or self.policy is None:
            return
        version = self.progress.weight_version
        changing = self.groups.new_weights(step, version, self.phase) if self.groups is not None else nullcontext()
        with changing, self.phase("sync"):
            self.rollout_version = self.send_weights()
        self.events.emit("sync", step=self.progress.step, version=version)

    def send_weights(self, *engines: int) -> int:
        """Give rollout engines, by default all, the policy's weights, and return their version.

        An update of the policy that is under way in another thread is waited for, and none begins meanwhile.
        """
        assert self.policy is not None, "there are weights where something is trained"
        assert self.rollout is not None, "engines ask for weights"
        with self._updating:
            version = self.progress.weight_version
            self.rollout.load_weights(self.policy.weights(), version, engines)
        return version

    def renew(self, engine: int) -> None:
        """Bring a rollout engine that took the place of a lost one to the weights that the others have."""
        if self.policy is not None:
            self.send_weights(engine)
        elif isinstance(self.groups, BufferWriter):
            self.groups.renew(engine)

    def record(self, step: int, samples: Sequence[Sample], metrics: Mapping[str, float]) -> None:
        """The step is over: its metrics go to the event log and the trackers."""
        self.progress.step = step
        everything = {**metrics, **self.meter.metrics(samples, metrics)}
        self.events.emit("step", step=step, total_steps=self.clock.known_steps, metrics=everything)
        self._track(everything, step)
        self.stop.step_over()
        self.finish_save(wait=False)
        self.checkpoints.check_copies()

    def _track(self, metrics: Mapping[str, float], step: int) -> None:
        for tracker in self.trackers:
            tracker.log(metrics, step=step)

    def show(self, name: str, responses: Sequence[ShownResponse], step: int) -> None:
        """Send responses to the trackers."""
        for tracker in self.trackers if responses else ():
            tracker.log_responses(name, responses, step=step)

    def evaluation_due(self, step: int) -> bool:
        """Whether held-out prompts are answered after this step."""
        return self.evaluator is not None and self.clock.evaluation_due(step)

    def evaluate(self, step: int) -> None:
        """Answer the held-out prompts with the weights of this step."""
        if self.evaluator is None:
            return
        if self.rollout_version != self.progress.weight_version:
            self.sync(step)
        with self.phase("evaluate"), self.groups.paused() if self.groups is not None else nullcontext():
            metrics = self.evaluator.run(step)
            self.write_samples(EVALUATION, step, self.evaluator.groups())
            self.show("evaluation/responses", self.evaluator.shown(), step)
        self.progress.evaluated.setdefault("first", metrics)
        self.progress.evaluated["last"] = metrics
        self.events.emit("evaluation", step=step, metrics=metrics)
        self._track(metrics, step)

    def save_due(self, step: int) -> bool:
        """Whether a checkpoint is written after this step: by the config, or as somebody asks for one."""
        return self.clock.save_due(step) or self.stop.checkpoint_asked()

    def save(self, step: int) -> None:
        """Write a checkpoint; under ``checkpoint.asynchronous`` begin one, that a later step finds written."""
        self.finish_save()
        self.saved_step = step
        settings = self.config.checkpoint
        with self.phase("save"):
            contents = {"contents": list(settings.save_contents)}
            controller = {"progress": vars(self.progress), "data": self.source.state(), "terms": terms(self.config)}
            controller["inputs"] = self.inputs
            self.checkpoints.begin(step, controller | contents, self._write_engines)
            self.stop.checkpoint_begun()
            if not settings.asynchronous:
                self._finish_save(step)
                self.checkpoints.settle()

    def _write_engines(self, folder: Path) -> None:
        if self.policy is None:
            return  # a run that only explores has its position to save
        settings = self.config.checkpoint
        self.policy.save(folder / "policy")
        if self.critic is not None:
            self.policy.is_saved(wait=settings.writers != "all")
            self.critic.save(folder / "critic")
        if settings.export == "always" or "hf_model" in settings.save_contents:
            self.policy.is_saved(wait=settings.writers != "all")
            self.policy.export(folder / "hf", asynchronous=settings.asynchronous)

    def finish_save(self, *, wait: bool = True) -> None:
        """Put a checkpoint that was begun in its place; without ``wait`` only if it is written."""
        step = self.checkpoints.under_way
        if step is None or not (wait or all(model.is_saved() for model in self._trained())):
            return
        with self.phase("save"):
            self._finish_save(step)

    def _finish_save(self, step: int) -> None:
        folder = self.checkpoints.finish(lambda: [model.is_saved(wait=True) for model in self._trained()])
        if self.groups is not None:
            self.groups.saved()
        self.events.emit("checkpoint", step=step, folder=str(folder))

    def _settle_saves(self) -> None:
        """Wait until all that was saved is whole, its copies too."""
        self.finish_save()
        if self.config.checkpoint.asynchronous:
            with self.phase("save"):
                self.checkpoints.settle()

    def _trained(self) -> list[Policy | ValueModel]:
        return [model for model in (self.policy, self.critic) if model is not None]

    def should_stop(self, step: int) -> bool:
        """Whether the run ends after this step though the stage is not over."""
        return step < self.clock.total_steps and self.stop.after_step()

    def leave(self, step: int) -> None:
        """The run ends here for now: what was done is saved, and it goes on from there."""
        if self.saved_step != step:
            self.save(step)
        self._settle_saves()

    def finish(self) -> None:
        """The stage is over: write its weights in Hugging Face format where that is asked for."""
        if self.progress.step < self.clock.total_steps:
            self._finish_early(self.progress.step)
        self._settle_saves()
        if self.groups is not None:
            self.groups.finished()
        if self.policy is not None and self.config.checkpoint.export != "never":
            self.export()
        self.finished = True
        self.events.emit("stage_ended", step=self.progress.step, **self.summary())

    def _finish_early(self, step: int) -> None:
        """There was nothing more to train on: this step is the last, and what belongs to the last is done."""
        evaluated = self.evaluation_due(step)
        self.clock = replace(self.clock, total_steps=step)
        if self.evaluation_due(step) and not evaluated:
            self.evaluate(step)
        if self.save_due(step) and self.saved_step != step:
            self.save(step)

    def export(self) -> None:
        """Write the weights of now in Hugging Face format, whole or not at all.

        Raises:
            RunError: they cannot be written.
        """
        assert self.policy is not None, "only a trained policy can be exported"
        partial = self.export_folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        with self.phase("export"):
            self.policy.export(partial)
            try:
                replace_folder(partial, self.export_folder)
            except OSError as error:
                raise RunError(
                    said(
                        "the weights cannot be written to {export_folder}: {strerror}",
                        export_folder=self.export_folder,
                        strerror=error.strerror,
                    )
                ) from error

    def raise_failure(self) -> None:
        """Raise what work in the background failed of, where it is that for which the run was asked to end."""
        if self.groups is not None and self.groups.failure is not None:
            self.stop.fail(False)
            raise self.groups.failure

    def close(self) -> None:
        """End work in the background."""
        if self.auxiliary is not None:
            self.auxiliary.close()
        if self.groups is not None:
            self.groups.close()

    def summary(self) -> dict[str, Any]:
        """What is told of the stage when it is over."""
        progress = self.progress
        return {
            "steps": progress.step,
            "tokens": progress.tokens,
            "responses": progress.responses,
            "evaluated": progress.evaluated,
            "seconds": progress.seconds,
        }


EVERYTHING = ("model", "optimizer", "extra")


def left_out(loaded: Sequence[str], saved: Sequence[str]) -> list[str]:
    """What a run that goes on exactly needs of a checkpoint and does not get."""
    return [content for content in EVERYTHING if content not in loaded or content not in saved]


def shown_responses(shown: Sequence[Mapping[str, Any]]) -> list[ShownResponse]:
    """The responses of a few groups (``Gathered.shown``) for trackers; none of a stage that draws none."""
    return [
        ShownResponse(str(item["prompt"]), text, reward)
        for item in shown
        if "rewards" in item
        for text, reward in zip(item["responses"], item["rewards"], strict=True)
    ]
