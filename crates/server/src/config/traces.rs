//! Where traces of requests are sent, and how many requests are traced.

use hyper::Uri;

use super::ConfigError;
use super::ranges::SHARES;

/// Default of `trace_ratio`: only what clients ask for.
pub const DEFAULT_TRACE_RATIO: f64 = 0.0;

/// The path of a collector whose URL has none (OTLP 1.0, "OTLP/HTTP").
const DEFAULT_PATH: &str = "/v1/traces";

/// The port of a collector whose URL has none.
const DEFAULT_PORT: u16 = 4318;

/// How requests are traced.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// The collector.
    pub endpoint: TraceEndpoint,
    /// Share of the requests that are traced although their clients do not ask for it, 0 to 1.
    pub ratio: f64,
}

/// The URL of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEndpoint {
    host: String,
    port: u16,
    path: String,
}

impl TraceEndpoint {
    /// The host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, as in the header `Host`.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The path, with its query.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn parse(text: &str) -> Option<TraceEndpoint> {
        let uri: Uri = text.trim().parse().ok()?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return None };
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return None;
        }
        let path = uri.path_and_query().map_or(DEFAULT_PATH, |path| path.as_str());
        Some(TraceEndpoint {
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(DEFAULT_PORT),
            path: if path == "/" { DEFAULT_PATH } else { path }.to_owned(),
        })
    }
}

/// The settings, if a collector is given.
pub(super) fn parse(
    endpoint: Option<&str>,
    ratio: Option<f64>,
) -> Result<Option<TraceSettings>, ConfigError> {
    let ratio = ratio.unwrap_or(DEFAULT_TRACE_RATIO);
    if !SHARES.contains(&ratio) {
        return Err(ConfigError::TraceRatio(ratio));
    }
    match endpoint {
        Some(text) => {
            let endpoint = TraceEndpoint::parse(text);
            let endpoint = endpoint.ok_or_else(|| ConfigError::TraceEndpoint(text.to_owned()))?;
            Ok(Some(TraceSettings { endpoint, ratio }))
        }
        None if ratio > 0.0 => Err(ConfigError::TraceRatioWithoutEndpoint),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(String, u16, String)> {
        let endpoint = TraceEndpoint::parse(text)?;
        Some((endpoint.host().to_owned(), endpoint.port(), endpoint.path().to_owned()))
    }

    #[test]
    fn urls_of_collectors() {
        let sound = [
            ("http://127.0.0.1:4318", ("127.0.0.1", 4318, "/v1/traces")),
            ("http://collector", ("collector", 4318, "/v1/traces")),
            ("http://collector:80/", ("collector", 80, "/v1/traces")),
            ("http://[::1]:4318/otlp/v1/traces?tenant=a", ("::1", 4318, "/otlp/v1/traces?tenant=a")),
        ];
        for (text, (host, port, path)) in sound {
            assert_eq!(parts(text), Some((host.to_owned(), port, path.to_owned())), "{text}");
        }
        let authority = TraceEndpoint::parse("http://[::1]").map(|endpoint| endpoint.authority());
        assert_eq!(authority.as_deref(), Some("[::1]:4318"));
        for text in [
            "",
            "collector:4318",
            "https://collector",
            "http://",
            "http://a b",
            "http://user@collector",
            "grpc://a",
        ] {
            assert_eq!(parts(text), None, "{text}");
        }
    }

    #[test]
    fn ratios_are_from_0_to_1_and_need_a_collector() {
        let ratio = |ratio| {
            parse(Some("http://collector"), ratio).map(|settings| settings.map(|settings| settings.ratio))
        };
        assert!(matches!(ratio(None), Ok(Some(0.0))));
        assert!(matches!(ratio(Some(1.0)), Ok(Some(1.0))));
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(ratio(Some(wrong)), Err(ConfigError::TraceRatio(_))), "{wrong}");
        }
        assert!(matches!(parse(None, Some(0.5)), Err(ConfigError::TraceRatioWithoutEndpoint)));
        assert!(matches!(parse(None, None), Ok(None)));
    }
}
