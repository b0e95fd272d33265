"""From prompts to what the loss reads: responses, rewards, filters, advantages, training samples."""
