//! Messages between two processes of a job, over a medium that may lose, double and reorder what
//! it carries: as data.
//!
//! A [`Channel`] is one end. It takes messages to be sent and frames that have come, and gives
//! frames to be sent and messages that are complete. Its owner carries the frames, and says what
//! time it is. Nothing here has a clock, a socket or memory that others see.
//!
//! - [`frame`]: what goes over the medium at once, to the byte.
//! - [`channel`]: order, credits, retransmission, and the flush before a switch.
//! - [`global`]: whether a whole program goes on, has ended, or waits for itself.
//! - [`standing`]: the same from look to look, with all that is not seen.
//! - [`flush`]: when a flush begins, whether it is over, what flushes have taken.
//! - [`port`]: the page that a port shares with the daemon of its host, to the byte.
//! - [`spill`]: the ring in that page for frames that the host holds.

pub mod channel;
pub mod flush;
pub mod frame;
pub mod global;
pub mod port;
pub mod spill;
pub mod standing;

pub use channel::{Channel, Config, Counts, Refused, TooLong};
pub use flush::{Held, Lead, Numbers, Sums, Times};
pub use frame::{Flags, Frame, Header, Key, Malformed, Rank};
pub use global::{Activity, AtFlush, Global, Verdict};
pub use standing::{Doing, Seen, Standing, Stands};
