//! How long to wait before trying again: a pure function of the retry's number and the dice.
