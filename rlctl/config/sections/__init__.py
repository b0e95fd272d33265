"""The sections of the canonical config, one module for each thing a person sets. Declarations only."""
