//! Tests of `outlet`: its promises, each as one test.
