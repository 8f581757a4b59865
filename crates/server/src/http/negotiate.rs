//! Content negotiation: which media type a client prefers (`Accept`, RFC 9110 section 12.5.1).
//!
//! Owns the parsing of the header. A client that accepts none of them gets the first: for metrics
//! and reports a readable answer serves an operator better than 406.

use hyper::HeaderMap;
use hyper::header::ACCEPT;

/// Thousandths, so that qualities compare exactly.
const QUALITY_MAX: u32 = 1_000;

/// The offer that the client prefers; among equals the first. Offers are media types with
/// parameters, of which only `version` distinguishes them.
pub(super) fn choose<'a>(headers: &HeaderMap, offers: &[&'a str]) -> &'a str {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<Range<'_>> = lines.flat_map(|line| line.split(',')).filter_map(Range::parse).collect();
    let mut best = (offers[0], 0);
    for &offer in offers {
        let quality = quality(&ranges, offer);
        if quality > best.1 {
            best = (offer, quality);
        }
    }
    best.0
}

/// Whether the client is a browser that wants a page: it prefers HTML to plain text.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    const PAGE: &str = "text/html";
    choose(headers, &["text/plain", PAGE]) == PAGE
}

/// The quality of the most specific range that matches.
fn quality(ranges: &[Range<'_>], offer: &str) -> u32 {
    let offer = Range::parse(offer).expect("invariant: an offer is a media type");
    let fitting = ranges.iter().filter_map(|range| Some((range.specificity(&offer)?, range.quality)));
    fitting.max().map_or(0, |(_, quality)| quality)
}

/// One element of the header.
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    version: Option<&'a str>,
    quality: u32,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Range<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut range = Range { kind, subtype, version: None, quality: QUALITY_MAX };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                name if name.eq_ignore_ascii_case("q") => range.quality = parse_quality(value)?,
                name if name.eq_ignore_ascii_case("version") => range.version = Some(value),
                _ => {}
            }
        }
        Some(range)
    }

    /// How specifically this range matches an offer; `None` if it does not.
    fn specificity(&self, offer: &Range<'_>) -> Option<u32> {
        if (self.kind, self.subtype) == ("*", "*") {
            return Some(0);
        }
        if !self.kind.eq_ignore_ascii_case(offer.kind) {
            return None;
        }
        if self.subtype == "*" {
            return Some(1);
        }
        if !self.subtype.eq_ignore_ascii_case(offer.subtype) {
            return None;
        }
        match self.version {
            None => Some(2),
            version => (version == offer.version).then_some(3),
        }
    }
}

/// `0` to `1` with at most three decimals.
fn parse_quality(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1")
        || decimals.len() > 3
        || !decimals.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let thousandths = format!("{whole}{decimals:0<3}").parse().ok()?;
    (thousandths <= QUALITY_MAX).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

    #[test]
    fn the_most_specific_range_says_how_much_a_type_is_liked() {
        for (accept, chosen) in [
            ("", OPEN),
            ("*/*", OPEN),
            ("text/plain;version=0.0.4", PLAIN),
            ("text/plain", PLAIN),
            ("Text/*", PLAIN),
            ("text/plain; version=\"0.0.4\"; q=0.5, */*;q=0.1", PLAIN),
            ("application/openmetrics-text", OPEN),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OPEN,
            ),
            ("application/openmetrics-text; version=0.0.1, text/plain; version=0.0.4; q=0.5", PLAIN),
            ("application/openmetrics-text;version=1.0.0;q=0,*/*", PLAIN),
            ("text/plain;version=1.0.0, application/*;q=0.1", OPEN),
            ("text/plain;q=0.5, application/openmetrics-text;q=0.501", OPEN),
            ("text/html,application/xml;q=0.9,*/*;q=0.8", OPEN),
            // Nothing matches, or is understood.
            ("image/png", OPEN),
            ("text/plain;q=2", OPEN),
            ("text/plain;q=0.1234, nonsense", OPEN),
        ] {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(choose(&headers, &[OPEN, PLAIN]), chosen, "{accept}");
        }
    }

    #[test]
    fn lines_of_the_header_are_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, "*/*;q=0.1".parse().unwrap());
        headers.append(ACCEPT, "text/plain;q=0.2".parse().unwrap());
        assert_eq!(choose(&headers, &[OPEN, PLAIN]), PLAIN);
    }
}
