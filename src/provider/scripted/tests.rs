//! Tests of `scripted`: its promises, each as one test.
