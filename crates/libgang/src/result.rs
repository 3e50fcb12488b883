//! Results, and the text of the last failure of a thread.

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use gang_protocol::error::ClientError;

/// As in `gang.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    Ok = 0,
    Invalid = 1,
    NoDaemon = 2,
    NoSuchJob = 3,
    NoSuchProcess = 4,
    NotPermitted = 5,
    Limit = 6,
    NotEnough = 7,
    NoAnswer = 8,
    Failed = 9,
    Unsupported = 10,
    // Only of LLNL's interface.
    BadMachine = 11,
    BadClass = 12,
    BadIdType = 13,
}

/// Each result with its text.
const TEXTS: [(Code, &CStr); 14] = [
    (Code::Ok, c"success"),
    (Code::Invalid, c"an argument is null, out of bounds, or no handle that this process got"),
    (Code::NoDaemon, c"no gangd listens"),
    (Code::NoSuchJob, c"the job has ended, or was never there"),
    (Code::NoSuchProcess, c"there is no such process or thread"),
    (Code::NotPermitted, c"not permitted"),
    (Code::Limit, c"a limit of gangd is reached"),
    (Code::NotEnough, c"there is not as much memory or disk as was asked for"),
    (Code::NoAnswer, c"gangd did not answer in time, or went away"),
    (Code::Failed, c"the kernel or the machine refused"),
    (Code::Unsupported, c"gangd does not know the request: it is of another version"),
    (Code::BadMachine, c"gangd does not look after that computer"),
    (Code::BadClass, c"there is no such class"),
    (Code::BadIdType, c"only processes can be added, by PROC_ID"),
];

/// Text for a number that C gave; that of no result says so.
pub fn text(number: u32) -> &'static CStr {
    TEXTS
        .iter()
        .find(|(code, _)| *code as u32 == number)
        .map_or(c"an unknown result", |(_, text)| text)
}

/// Why a call came to nothing.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Code::Invalid, message)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        use ClientError::*;
        let code = match &error {
            NoDaemon { .. } => Code::NoDaemon,
            ForeignSocket { .. }
            | ConnectNotPermitted { .. }
            | OtherNamespace { .. }
            | NotPermitted { .. } => Code::NotPermitted,
            Connect { .. } | TimedOut { .. } | Lost { .. } | Closed { .. } => Code::NoAnswer,
            Malformed { .. } | Unsupported { .. } => Code::Unsupported,
            NoSuchJob { .. } => Code::NoSuchJob,
            NoSuchProcess { .. } | NoSuchThread { .. } => Code::NoSuchProcess,
            InvalidValue { .. } => Code::Invalid,
            LimitReached { .. } => Code::Limit,
            NotEnough { .. } => Code::NotEnough,
            NoSuchCgroup { .. } | Failed { .. } => Code::Failed,
        };
        Failure { code, message: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the last failure of this thread.
pub fn last() -> *const c_char {
    // A thread that ends has none any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Does what a call asks for, and gives C its result.
pub fn answer(call: impl FnOnce() -> Result<(), Failure>) -> u32 {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Code::Ok as u32,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Code::Failed, "a fault in libgang"),
    };
    let message = failure.message.replace(['\0', '\n'], " ");
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(message).unwrap_or_default());
    failure.code as u32
}
