/// What can be wrong with a request to this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data contradicts itself, or claims more than its size allows.
    #[error("{0}")]
    Damaged(String),
    /// The caller asked for something that makes no sense, like a column that is not there.
    #[error("{0}")]
    Usage(String),
    /// What was asked about is not there any more, or is not what it was.
    #[error("{0}")]
    Refused(String),
    /// The result cannot be encoded.
    #[error("{0}")]
    Output(String),
}

impl Error {
    pub(crate) fn damaged(message: impl ToString) -> Self {
        Self::Damaged(message.to_string())
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::Usage(message.to_string())
    }

    pub(crate) fn refused(message: impl ToString) -> Self {
        Self::Refused(message.to_string())
    }

    pub(crate) fn output(message: impl ToString) -> Self {
        Self::Output(message.to_string())
    }
}
