"""Training with TRL: warm starts (SFTTrainer) and both roles (GRPOTrainer). Imports torch."""
