//! Tests of `inject`: its promises, each as one test.
