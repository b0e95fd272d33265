"""The run of one stage, as the algorithm is written.

    rl:   prompts ─▶ responses ─▶ rewards ─▶ advantages ─▶ update ─▶ new weights to the rollout engines
    sft:  sequences ──────────────────────────────────────▶ update

    step:   1        2        3   ...
            roll out roll out
            estimate estimate
            train    train
            sync     sync              the next responses are drawn by the weights just trained
            [evaluate] [save]          where they are due

    roll out  rl: ``GroupSource.take`` draws, scores and filters groups. sft, dpo: the next sequences or pairs of the data
    estimate  rl: ``RolloutBatchBuilder`` adds log-probs of the old policy and the reference, values and advantages
    train     critic, then policy: every optimizer step of every epoch over the step's samples (``Policy.train``,
              ``Trainer.train_step``)
    sync      the policy's weights go to the rollout engines (``WeightSync``)

A step is over when it is recorded; a checkpoint holds everything that the next step depends on, so a resumed run goes on as
the one that was not interrupted would have.
"""

from __future__ import annotations

from rlctl.runtime.stage_run import StageRun


def run_stage(stage: StageRun) -> None:
    """Run a stage from where its checkpoint left it to its end."""
    stage.start()
    for step in stage.remaining_steps():
        groups = stage.roll_out(step)
        samples, metrics = stage.estimate(step, groups)
        metrics |= stage.train(step, samples)
        if stage.sync_due(step):
            stage.sync(step)
        stage.record(step, samples, metrics)
        if stage.evaluation_due(step):
            stage.evaluate(step)
        if stage.save_due(step):
            stage.save(step)
        if stage.should_stop(step):
            stage.leave(step)
            return
    stage.finish()
