//! The upper bound for benchmarks: hyper on tokio's current-thread runtime with a constant answer.
//!
//! `cargo run --release --example hello -- 127.0.0.1:8099`, then `wrk -t1 -c64
//! http://127.0.0.1:8099/`.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Response, server::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| String::from("127.0.0.1:8099"));
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let listener = TcpListener::bind(&address).await?;
        println!("listening on {address}");
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let hello = service_fn(|_| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello, world!!\n"))))
            });
            tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(stream), hello));
        }
    })
}
