"""Runs a plan. The only package that imports torch, Ray and the engines.

launch(plan, config, folder)
  └─ for each stage: place ──▶ groups of workers ──▶ StageRun ──▶ loop.run_stage ──▶ events.jsonl, checkpoints

loop.py         the run itself, reads like the algorithm
stage_run.py    what the loop does in each of its lines
roles.py        the model roles as the controller sees them
experience.py   prompts to training samples
launch.py       starting Ray, stages, failure and teardown
placement.py    StagePlan -> placement group and actors
group.py        calling all workers of a role, and the first error that matters
checkpoint.py   whole checkpoints or none
events.py       the run folder's event log
workers/        one plain class a file, hosted by actors
train/ rollout/ algorithms/ rewards/ data/ tracking/
"""
