//! The page itself. It is built from `crates/view/web` and compiled into the program. Nothing in it
//! is secret.

use axum::Router;
use axum::http::header;
use axum::routing::get;

type Asset = (&'static str, &'static str, &'static [u8]);

/// Path, type and bytes.
pub const ASSETS: [Asset; 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../../web/dist/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_bytes!("../../web/dist/page.js")),
    ("/page.css", "text/css; charset=utf-8", include_bytes!("../../web/dist/page.css")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../../web/dist/icon.svg")),
];

pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.into_iter().fold(Router::new(), |router, (path, kind, bytes)| {
        router.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], bytes) }))
    })
}

#[cfg(test)]
mod tests {
    use super::ASSETS;

    /// Bytes of all that a browser loads (SPECIFICATION.md).
    const BYTES_MAX: usize = 300_000;

    #[test]
    fn page_is_small_and_loads_nothing_from_elsewhere() {
        let bytes: usize = ASSETS.iter().map(|(_, _, bytes)| bytes.len()).sum();
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
        println!("{bytes} bytes");
        for (path, _, bytes) in ASSETS {
            let text = std::str::from_utf8(bytes).unwrap();
            // That of SVG is a name, not an address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            let outside = text.split("://").skip(1).map(|rest| rest.chars().take(30).collect());
            let outside: Vec<String> = outside.collect();
            let is_comment = |rest: &String| rest.starts_with("github.com/leeoniya/uPlot");
            assert!(outside.iter().all(is_comment), "{path} has addresses: {outside:?}");
        }
    }
}
