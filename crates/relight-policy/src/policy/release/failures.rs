//! What a failure says of the release that had it.

use crate::domain::failure::{Failure, InvalidRequestDetail};

/// Returns the text that failures of one broken release share, by its detail or by an error of the
/// code behind it; empty if nothing is known.
#[must_use]
pub fn signature(failure: &Failure) -> &'static str {
    let of_detail = match failure.detail {
        Some(InvalidRequestDetail::ParameterMismatch) => "parameter_mismatch",
        Some(InvalidRequestDetail::UnsupportedParameter) => "unsupported_parameter",
        Some(InvalidRequestDetail::BadSchema) => "bad_schema",
        Some(InvalidRequestDetail::MessageOrder | InvalidRequestDetail::Other) | None => "",
    };
    let in_words = ["TypeError", "AttributeError"]
        .into_iter()
        .find(|error| failure.message.contains(error));
    if of_detail.is_empty() {
        in_words.unwrap_or_default()
    } else {
        of_detail
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::FailureClass;

    #[test]
    fn errors_of_the_code_behind_a_release_have_a_signature() {
        let failed = |class, detail, message: &str| {
            let failure = Failure {
                detail,
                ..Failure::local(class, message)
            };
            signature(&failure)
        };
        let missing = "AttributeError: 'NoneType' object has no attribute 'cursor'";
        assert_eq!(
            failed(FailureClass::ServerError, None, missing),
            "AttributeError"
        );
        assert_eq!(
            failed(
                FailureClass::ToolFailed,
                None,
                "TypeError: 'int' object is not iterable"
            ),
            "TypeError"
        );
        let mismatch = Some(InvalidRequestDetail::ParameterMismatch);
        assert_eq!(
            failed(
                FailureClass::InvalidRequest,
                mismatch,
                "TypeError: unexpected"
            ),
            "parameter_mismatch"
        );
        assert_eq!(failed(FailureClass::ServerError, None, "500"), "");
    }
}
