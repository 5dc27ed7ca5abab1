//! Telling the model what went wrong: whether, what, and where it is legal.
