"""What is known of Megatron-core without importing it: names of its settings, and its rules of layout."""
