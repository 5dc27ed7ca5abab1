-- Where the answer is found that a provider makes in the background for a running invocation, as JSON.

ALTER TABLE invocations ADD COLUMN upstream TEXT;
