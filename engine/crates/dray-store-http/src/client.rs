//! Sends requests and receives answers. Keeps connections open, follows redirects, and makes errors
//! that contain the server's message.

use crate::address_policy::{AddressPolicy, Denied, PermittedAddresses};
use crate::credentials::Credentials;
use crate::names::Capitals;
use crate::pause::{Patience, Pauses, is_busy, read_retry_after};
use crate::redirect::RequestTarget;
use crate::url::Origin;
use dray_core::{End, Error, ErrorKind, RelPath, Result, Status};
use dray_store::errno::{io_words, too_many_open};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::http;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, DefaultConnector};

/// Maximum time to connect. A server that takes longer counts as unreachable.
const CONNECT_MAX: Duration = Duration::from_secs(15);

/// Maximum time without a received byte before a connection counts as lost. Some servers compute a
/// checksum, or fetch a file from a tape system, before they answer. The value is estimated, not
/// measured.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Maximum number of redirects in a row.
const REDIRECTS_MAX: usize = 10;

/// Maximum number of connections kept open for later requests.
const KEPT_MAX: usize = 256;

/// Maximum idle time of a connection. Servers close idle connections after a similar time.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// Number of bytes of an error page that are searched for the cause.
const REASON_BYTES: u64 = 512;

/// One request.
pub(crate) struct Ask<'a> {
    pub(crate) method: &'static str,
    pub(crate) place: &'a RequestTarget,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'static str,
    /// Description of the request for errors: an infinitive such as "list".
    pub(crate) operation: &'static str,
    pub(crate) file: &'a RelPath,
}

/// A server's answer with any HTTP status.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Resource that answered. After a redirect, it differs from the requested resource.
    pub(crate) place: RequestTarget,
    response: http::Response<ureq::Body>,
}

impl Answer {
    /// Returns the value of a header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns true if XRootD's own HTTP server sent the answer.
    fn is_of_xrootd(&self) -> bool {
        let server = self.header("server").unwrap_or_default();
        server.to_ascii_lowercase().starts_with("xrootd")
    }

    /// Returns the length in bytes that the server announced for the body.
    pub(crate) fn length(&self) -> Option<u64> {
        self.header("content-length")?.trim().parse().ok()
    }

    /// Returns a reader of the body.
    pub(crate) fn into_body(self) -> impl Read {
        self.response.into_body().into_reader()
    }
}

/// Sends requests to one server, and to the servers to which that server redirects requests.
#[derive(Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
    /// HTTP agent that uses no proxy.
    direct: ureq::Agent,
    home: Origin,
    credentials: Credentials,
    pauses: Pauses,
    end: End,
}

impl Client {
    /// Creates a client for the server `home`. Only this server gets the credentials. Requests go
    /// only to the addresses that the policy permits.
    pub(crate) fn new(
        home: Origin,
        credentials: Credentials,
        end: End,
        addresses: AddressPolicy,
    ) -> Self {
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(authorities())))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let agent = |proxy| {
            let config = ureq::Agent::config_builder()
                .tls_config(tls.clone())
                .proxy(proxy)
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .allow_non_standard_methods(true)
                .user_agent(concat!("dray/", env!("CARGO_PKG_VERSION")))
                .accept_encoding("identity")
                .timeout_connect(Some(CONNECT_MAX))
                .timeout_per_read(Some(SILENCE_MAX))
                .timeout_per_write(Some(SILENCE_MAX))
                .max_idle_connections(KEPT_MAX)
                .max_idle_connections_per_host(KEPT_MAX)
                .max_idle_age(KEPT_FOR)
                .build();
            let connector = DefaultConnector::new().chain(Capitals);
            let resolver = PermittedAddresses::new(DefaultResolver::default(), addresses.clone());
            ureq::Agent::with_parts(config, connector, resolver)
        };
        Self {
            agent: agent(ureq::Proxy::try_from_env()),
            direct: agent(None),
            home,
            credentials,
            pauses: Pauses::default(),
            end,
        }
    }

    /// Sends a request and follows redirects. Returns the answer, whatever its status.
    ///
    /// # Errors
    /// An error if no answer comes, or if there are too many redirects.
    pub(crate) fn ask(&self, ask: &Ask<'_>) -> Result<Answer> {
        self.follow(ask, &mut |ask, place| self.ask_once(ask, place))
    }

    /// Sends a request with the function `once`. After each redirect, sends the request to the new
    /// place.
    ///
    /// # Errors
    /// The errors of [`Self::ask`].
    pub(crate) fn follow(
        &self,
        ask: &Ask<'_>,
        once: &mut dyn FnMut(&Ask<'_>, RequestTarget) -> Result<Answer>,
    ) -> Result<Answer> {
        let mut place = ask.place.clone();
        let mut patience = Patience::default();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.patiently(ask, place, &mut patience, once)?;
            self.refuse_coded(ask, &answer)?;
            if answer.is_of_xrootd() && answer.place.named().contains(&b'?') {
                return Err(self
                    .fault(ErrorKind::Unsupported, ask)
                    .cause(format!(
                        "{} reads the part of the file name after the question mark as parameters",
                        answer.place.origin
                    ))
                    .remedy("rename the file to a name without a question mark"));
            }
            if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let location = answer.response.headers().get("location");
            let location = location.map(http::HeaderValue::as_bytes);
            let location = answer.place.meant(location.unwrap_or_default());
            let next = answer.place.redirected(&location).ok_or_else(|| {
                self.fault(ErrorKind::Protocol, ask)
                    .cause(format!(
                        "{} sends a redirect without a valid address",
                        answer.place.origin
                    ))
                    .remedy("use the final address of the file, without redirects")
            })?;
            if answer.is_of_xrootd()
                && answer.place.may_be_confused()
                && !answer.place.names_as(&next)
            {
                return Err(self
                    .fault(ErrorKind::Unsupported, ask)
                    .cause(format!(
                        "{} redirects to a different file name, perhaps because the requested \
                            name contains # or %HH",
                        answer.place.origin
                    ))
                    .remedy("use the address of the server that holds the file"));
            }
            let is_elsewhere = !next.origin.is(&answer.place.origin);
            if is_elsewhere && next.origin.leads_here() && !self.home.leads_here() {
                return Err(self
                    .fault(ErrorKind::Unauthorized, ask)
                    .cause(format!(
                        "{} redirects to {}, an address of this host; dray does not follow such a \
                        redirect",
                        answer.place.origin, next.origin
                    ))
                    .remedy("if you trust the new server, use the new address in the command"));
            }
            if answer.place.origin.is_secure && !next.origin.is_secure && !next.origin.is_loopback()
            {
                return Err(self
                    .fault(ErrorKind::Unauthorized, ask)
                    .cause(format!(
                        "{} redirects to {}, which is not encrypted",
                        answer.place.origin, next.origin
                    ))
                    .remedy("if you trust the new server, use the new address in the command"));
            }
            place = next;
        }
        Err(self
            .fault(ErrorKind::LimitExceeded, ask)
            .cause(format!(
                "the server sent more than {REDIRECTS_MAX} redirects"
            ))
            .remedy("use the final address of the file, without redirects"))
    }

    /// Sends a request to one place. Repeats the request while the server is busy, for a limited
    /// time.
    fn patiently(
        &self,
        ask: &Ask<'_>,
        place: RequestTarget,
        patience: &mut Patience,
        once: &mut dyn FnMut(&Ask<'_>, RequestTarget) -> Result<Answer>,
    ) -> Result<Answer> {
        loop {
            self.pauses.sit_out(&place.origin);
            let answer = once(ask, place.clone())?;
            if !is_busy(answer.status) {
                return Ok(answer);
            }
            let asked = answer.header("retry-after");
            let asked = asked.and_then(|text| read_retry_after(text, answer.header("date")));
            let Some(wait) = patience.next(asked) else {
                let wish =
                    asked.map(|asked| format!("; the server asks to wait {} s", asked.as_secs()));
                let mut error = self.refused(ask, answer).status(Status::Exhausted);
                error.cause.push_str(&wish.unwrap_or_default());
                return Err(error);
            };
            self.pauses.begin(&place.origin, wait);
        }
    }

    /// Rejects an encoded body. The request did not ask for an encoding, and the bytes of the body
    /// are not those of the file.
    fn refuse_coded(&self, ask: &Ask<'_>, answer: &Answer) -> Result<()> {
        let coding = answer.header("content-encoding").unwrap_or_default().trim();
        let is_plain = coding.is_empty() || coding.eq_ignore_ascii_case("identity");
        if is_plain || !matches!(answer.status, 200 | 206 | 207) {
            return Ok(());
        }
        Err(self
            .fault(ErrorKind::Unsupported, ask)
            .cause(format!(
                "{} sends the file encoded as {coding:?}, although plain bytes were requested",
                answer.place.origin
            ))
            .remedy("configure the server to send the file unencoded, or use another program"))
    }

    /// Returns a request to `place`. It contains the credentials if `place` is on the home server.
    fn head(&self, ask: &Ask<'_>, place: &RequestTarget) -> Result<http::request::Builder> {
        let uri = format!("{}{}", place.origin, place.target);
        let mut request = http::Request::builder().method(ask.method).uri(uri);
        for (name, value) in ask.headers {
            request = request.header(*name, *value);
        }
        // Send no credentials to other servers. The home server puts the needed permission into the
        // URL of the redirect.
        if place.origin.is(&self.home) {
            let is_private = place.origin.is_secure || place.origin.is_loopback();
            for (name, value) in self.credentials.for_server(is_private)? {
                request = request.header(name, value);
            }
        }
        Ok(request)
    }

    /// Returns the HTTP agent for a server. The agent uses the proxy of the environment, except for
    /// loopback addresses: for a proxy, a loopback address would be its own host.
    fn agent_for(&self, origin: &Origin) -> &ureq::Agent {
        match origin.is_loopback() {
            true => &self.direct,
            false => &self.agent,
        }
    }

    fn ask_once(&self, ask: &Ask<'_>, place: RequestTarget) -> Result<Answer> {
        let request = self.head(ask, &place)?;
        let agent = self.agent_for(&place.origin);
        let answered = match ask.body {
            "" => request.body(()).map(|request| agent.run(request)),
            body => request.body(body).map(|request| agent.run(request)),
        };
        self.answered(ask, place, answered)
    }

    /// Sends a body to one place and returns the answer, which may be a redirect.
    ///
    /// # Errors
    /// The errors of [`Self::ask`].
    pub(crate) fn send_once(
        &self,
        ask: &Ask<'_>,
        place: RequestTarget,
        body: &mut dyn Read,
    ) -> Result<Answer> {
        let mut body = body;
        let request = self.head(ask, &place)?;
        let body = ureq::SendBody::from_reader(&mut body);
        let agent = self.agent_for(&place.origin);
        let answered = request.body(body).map(|request| agent.run(request));
        self.answered(ask, place, answered)
    }

    fn answered(
        &self,
        ask: &Ask<'_>,
        place: RequestTarget,
        answered: Result<Result<http::Response<ureq::Body>, ureq::Error>, http::Error>,
    ) -> Result<Answer> {
        let bad = |error: http::Error| {
            self.fault(ErrorKind::InvalidRequest, ask)
                .cause(error.to_string())
                .remedy("check the address")
        };
        let response = answered
            .map_err(bad)?
            .map_err(|error| self.no_answer(ask, &place.origin, &error))?;
        Ok(Answer {
            status: response.status().as_u16(),
            place,
            response,
        })
    }

    /// Returns the error for a request without a complete answer.
    fn no_answer(&self, ask: &Ask<'_>, server: &Origin, error: &ureq::Error) -> Error {
        if let ureq::Error::Io(error) = error
            && let Some(lack) = too_many_open(End::Here, ask.operation, error)
        {
            return lack.file(ask.file);
        }
        if let Some(denied) = Denied::in_error(error) {
            return Error::new(ErrorKind::PermissionDenied, End::Here, ask.operation)
                .file(ask.file)
                .cause(format!("{server}: {denied}"))
                .remedy(
                    "use another server, or ask the administrator of this host to add the address \
                    to the setting `allow_addresses`",
                );
        }
        let kind = match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                ErrorKind::Unreachable
            }
            ureq::Error::Timeout(_) => ErrorKind::TimedOut,
            ureq::Error::Io(error) => kind_of(error),
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => ErrorKind::InvalidRequest,
            ureq::Error::Protocol(_) => ErrorKind::Protocol,
            _ => ErrorKind::Unreachable,
        };
        let words = match error {
            ureq::Error::Io(error) => io_words(error),
            other => other.to_string(),
        };
        let fault = self.fault(kind, ask).cause(format!("{server}: {words}"));
        if is_certificate_invalid(error) {
            let remedy = "add the authority of the server's certificate to the authorities in \
                SSL_CERT_FILE or X509_CERT_DIR";
            return fault.status(Status::Permanent).remedy(remedy);
        }
        match kind {
            ErrorKind::InvalidRequest => fault.remedy("check the address"),
            // The error is temporary, because a later request may reach a server that uses HTTP.
            ErrorKind::Protocol => fault
                .status(Status::Temporary)
                .remedy("check that a web server answers at the given address"),
            _ => fault.remedy("check the address, and that the server runs"),
        }
    }

    /// Returns the error for a body that ended too early.
    pub(crate) fn cut_off(&self, ask: &Ask<'_>, server: &Origin, error: &std::io::Error) -> Error {
        self.fault(kind_of(error), ask)
            .cause(format!("{server}: {}", io_words(error)))
            .remedy("check the server and the network, then run the same command again")
    }

    /// Returns the error for the HTTP status of an answer.
    pub(crate) fn refused(&self, ask: &Ask<'_>, answer: Answer) -> Error {
        let status = answer.status;
        let (kind, remedy) = meaning(status);
        let server = answer.place.origin.clone();
        let reason = match ask.method {
            "HEAD" => String::new(),
            _ => reason(answer.into_body()),
        };
        let cause = match reason.is_empty() {
            true => format!("{server} answers {status}"),
            false => format!("{server} answers {status}: {reason}"),
        };
        let error = self.fault(kind, ask).cause(cause).remedy(remedy);
        match status {
            400..=499 if kind == ErrorKind::Other => error.status(Status::Permanent),
            _ => error,
        }
    }

    /// Returns an error for the request `ask`.
    pub(crate) fn fault(&self, kind: ErrorKind, ask: &Ask<'_>) -> Error {
        Error::new(kind, self.end, ask.operation).file(ask.file)
    }
}

fn kind_of(error: &std::io::Error) -> ErrorKind {
    match error.kind() {
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => ErrorKind::TimedOut,
        _ => ErrorKind::Unreachable,
    }
}

/// Returns the error kind and the remedy for an HTTP status (RFC 9110, section 15).
fn meaning(status: u16) -> (ErrorKind, &'static str) {
    match status {
        401 => (
            ErrorKind::Unauthorized,
            "set BEARER_TOKEN_FILE to a file with a token",
        ),
        403 => (
            ErrorKind::PermissionDenied,
            "ask for access, or set BEARER_TOKEN_FILE to a file with another token",
        ),
        404 | 410 => (ErrorKind::NotFound, "check the path"),
        405 | 501 => (
            ErrorKind::Unsupported,
            "use another server, because this server does not support the request",
        ),
        408 | 504 => (ErrorKind::TimedOut, "try again later"),
        412 => (
            ErrorKind::SourceChanged,
            "run the same command again when no program writes to the file",
        ),
        416 => (
            ErrorKind::ShortRead,
            "run the same command again when no program writes to the file",
        ),
        423 | 425 | 429 | 503 => (ErrorKind::Busy, "try again later"),
        _ => (ErrorKind::Other, "look for the cause in the server's log"),
    }
}

/// Returns the first line of plain text in an error page.
fn reason(body: impl Read) -> String {
    let mut bytes = Vec::new();
    // Ignore an error. If the body cannot be read, the error has no cause from the server.
    let _ = body.take(REASON_BYTES).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line
        .filter(|line| !line.starts_with('<'))
        .unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Returns true if the client did not accept the certificate of the server.
fn is_certificate_invalid(error: &ureq::Error) -> bool {
    let inner = match error {
        ureq::Error::Rustls(error) => Some(error),
        // A handshake error is inside an input/output error.
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    };
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// Returns the trusted certificate authorities: those of the system (or of `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`), and those in `X509_CERT_DIR`, the folder for authorities of the grid.
fn authorities() -> Vec<Certificate<'static>> {
    let mut found = rustls_native_certs::load_native_certs().certs;
    if let Some(folder) = std::env::var_os("X509_CERT_DIR") {
        let grid = rustls_native_certs::load_certs_from_paths(None, Some(Path::new(&folder)));
        found.extend(grid.certs);
    }
    let own = |der: &rustls::pki_types::CertificateDer<'_>| Certificate::from_der(der).to_owned();
    found.iter().map(own).collect()
}

#[cfg(test)]
mod tests {
    use super::{Answer, Ask, Client, reason};
    use crate::address_policy::AddressPolicy;
    use crate::credentials::Credentials;
    use crate::redirect::RequestTarget;
    use crate::url::{HttpUrl, Origin};
    use dray_core::{End, ErrorKind, RelPath, Result};
    use ureq::http;

    /// Sends a request to a fake server that redirects to `to`. The fake server answers the second
    /// request. No connection is made.
    fn redirected(from: &str, to: &str) -> Result<u16> {
        redirected_by("a server", from, to)
    }

    fn redirected_by(server: &str, from: &str, to: &str) -> Result<u16> {
        let url = HttpUrl::read(from.as_bytes()).expect("good").expect("web");
        let home: Origin = url.origin.clone();
        let client = Client::new(
            home.clone(),
            Credentials::none(),
            End::Source,
            AddressPolicy::default(),
        );
        let place = RequestTarget::new(&home, &url.path, None);
        let ask = Ask {
            method: "GET",
            place: &place,
            headers: &[],
            body: "",
            operation: "read the file",
            file: &RelPath::root(),
        };
        let mut once = |_: &Ask<'_>, place: RequestTarget| {
            let status = if place.origin.is(&home) { 307 } else { 200 };
            let response = http::Response::builder().status(status);
            let response = response
                .header("Location", to)
                .header("Server", server)
                .body(ureq::Body::builder().data(""));
            Ok(Answer {
                status,
                place,
                response: response.expect("good"),
            })
        };
        Ok(client.follow(&ask, &mut once)?.status)
    }

    #[test]
    fn only_this_host_redirects_to_its_own_services() {
        for (from, to) in [
            ("https://192.0.2.1/a", "http://127.0.0.1:1/a"),
            ("http://192.0.2.1/a", "http://localhost:1/a"),
            ("https://192.0.2.1/a", "https://[::1]/a"),
            ("https://192.0.2.1/a", "http://192.0.2.2/a"),
        ] {
            let error = redirected(from, to).expect_err(to);
            assert_eq!(error.kind, ErrorKind::Unauthorized, "{to}");
        }
        for (from, to) in [
            ("https://127.0.0.1/a", "http://127.0.0.1:1/a"),
            ("http://localhost/a", "http://127.0.0.1:1/a"),
            ("http://192.0.2.1/a", "http://192.0.2.2/a"),
            ("https://192.0.2.1/a", "https://192.0.2.2/a"),
        ] {
            assert_eq!(redirected(from, to).expect(to), 200);
        }
    }

    #[test]
    fn a_redirect_of_xrootd_to_a_sibling_is_not_followed() {
        for (asked, to, is_followed) in [
            ("http://h/my%2520file", "http://b:1/my%20file", true),
            ("http://h/my%2520file", "http://b:1/x/my%20file", false),
            ("http://h/run%231", "http://b:1/x/run#1", false),
            ("http://h/my%20file", "http://b:1/x/my file", true),
            ("http://h/a%3Fb", "http://b:1/a?b", false),
        ] {
            for (server, is_xrootd) in [("XrootD/v5.5.3", true), ("dCache/9.2", false)] {
                let answered = redirected_by(server, asked, to);
                let wanted = is_followed || !is_xrootd;
                assert_eq!(answered.is_ok(), wanted, "{asked} to {to} by {server}");
            }
        }
    }

    #[test]
    fn a_page_of_markup_is_no_reason() {
        assert_eq!(
            reason(&b"\n Unable to open \x1b[0m\nmore"[..]),
            "Unable to open [0m"
        );
        assert_eq!(reason(&b"<html>"[..]), "");
    }
}
