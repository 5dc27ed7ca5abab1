//! The planner: whether there is another attempt, after which wait, and why not.
