//! Tests of `openai`: its promises, each as one test.
