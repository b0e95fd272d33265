"""The engines that train: one interface, what every engine shares (losses, schedules, micro-batches), and the engines.

    Samples ──microbatch──▶ packed tokens ──engine's model──▶ log-probs, entropy ──losses──▶ loss ──▶ optimizer step

To add an engine, implement ``interface.TrainEngine``; nothing else knows which one it drives.
"""
