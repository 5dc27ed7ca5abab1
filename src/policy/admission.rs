//! Who may come in: bounded work in flight, shared fairly among tenants.
