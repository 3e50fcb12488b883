//! The way of a file to the record of a job, with the properties that must hold on it. Shared by
//! the test of the corpus and by the fuzz target.

use gang_timetable::{
    Attributes,
    record::{Normal, Record},
};

/// Whether some bytes are a record. Written again they are the same one.
pub fn is_record(data: &[u8]) -> bool {
    let Ok(record) = serde_json::from_slice::<Record>(data) else { return false };
    let written = serde_json::to_vec_pretty(&record).expect("a record can be written");
    let again: Record = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(again, record);
    // By these a thread is released; what is not known is ordinary.
    let attributes = Attributes::from(record.normal);
    assert_eq!(Attributes::from(Normal::from(attributes)), attributes);
    let _ = record.placement.confinement();
    true
}
