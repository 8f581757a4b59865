//! The header `traceparent` of W3C Trace Context, section 3.2.

use hyper::HeaderMap;
use tidelock_core::spans::{SpanId, TraceId};

/// The name of the header.
const TRACEPARENT: &str = "traceparent";

/// Bit of the flags that says that the client records this trace.
const SAMPLED: u8 = 1;

/// What a client says about the trace of its request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub trace: TraceId,
    /// The client's span.
    pub span: SpanId,
    /// Whether the client records the trace.
    pub is_sampled: bool,
}

/// What the header says; `None` if it is absent, repeated or malformed. The specification wants a
/// malformed one to be ignored.
pub(super) fn parse(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let (value, None) = (values.next()?.to_str().ok()?, values.next()) else { return None };
    let mut fields = value.split('-');
    let version = byte(fields.next()?)?;
    let trace = TraceId::new(number(fields.next()?, 32)?.to_be_bytes())?;
    let span = SpanId::new(number(fields.next()?, 16)? as u64)?;
    let flags = byte(fields.next()?)?;
    // Version 255 is invalid, and version 0 has four fields; later ones may have more.
    let is_valid = version != 0xff && (version != 0 || fields.next().is_none());
    is_valid.then_some(TraceParent { trace, span, is_sampled: flags & SAMPLED != 0 })
}

fn byte(field: &str) -> Option<u8> {
    number(field, 2).map(|number| number as u8)
}

/// A number of exactly this many lower-case hexadecimal digits.
fn number(field: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = field.len() == digits && field.bytes().all(is_digit);
    is_number.then(|| u128::from_str_radix(field, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(values: &[&str]) -> Option<TraceParent> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, value.parse().expect("a header"));
        }
        parse(&headers)
    }

    #[test]
    fn headers_of_the_specification_are_read_and_others_ignored() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let expected = |is_sampled| TraceParent {
            trace: TraceId::new(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes())
                .expect("not zero"),
            span: SpanId::new(0x00f0_67aa_0ba9_02b7).expect("not zero"),
            is_sampled,
        };
        assert_eq!(parsed(&[&format!("00-{trace}-{span}-01")]), Some(expected(true)));
        assert_eq!(parsed(&[&format!("00-{trace}-{span}-00")]), Some(expected(false)));
        assert_eq!(parsed(&[&format!("00-{trace}-{span}-03")]), Some(expected(true)));
        assert_eq!(parsed(&[&format!("01-{trace}-{span}-01-more")]), Some(expected(true)));
        let malformed = [
            String::new(),
            "00".into(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("00-{trace}-{span}-1"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-+{}-{span}-01", &trace[1..]),
        ];
        for value in &malformed {
            assert_eq!(parsed(&[value]), None, "{value}");
        }
        let sound = format!("00-{trace}-{span}-01");
        assert_eq!(parsed(&[&sound, &sound]), None, "which of the two is meant is unknown");
        assert_eq!(parsed(&[]), None);
    }
}
