"""What a model is asked: prompts, questions, and the Count01 language with its data."""
