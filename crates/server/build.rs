//! Prepares the files of the console for the server, which contains them compressed.
//!
//! Writes `console.rs` with a table of all files in `console/`, in order of their names: entity tag
//! and compressed bytes. It also holds the hash of the page's import map, which is the only inline
//! script that the page's content security policy allows.

use std::io::Write;
use std::path::Path;
use std::{env, fs, io};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=console");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let mut paths: Vec<_> =
        fs::read_dir("console")?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    let mut table = String::from("static FILES: &[ConsoleFile] = &[\n");
    let mut import_map = None;
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidData)?;
        let bytes = fs::read(&path)?;
        if name == "index.html" {
            import_map = Some(STANDARD.encode(Sha256::digest(import_map_of(&bytes)?)));
        }
        let compressed = Path::new(&out).join(format!("{name}.gz"));
        let mut encoder = GzEncoder::new(fs::File::create(&compressed)?, Compression::best());
        encoder.write_all(&bytes)?;
        encoder.finish()?;
        let entity_tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&Sha256::digest(&bytes)[..12]));
        table += &format!(
            "    ConsoleFile {{ name: {name:?}, entity_tag: {entity_tag:?}, gzip: include_bytes!({compressed:?}) }},\n"
        );
    }
    let hash = import_map.ok_or_else(|| io::Error::other("console/index.html is missing"))?;
    table += &format!("];\n\nconst IMPORT_MAP_SHA256: &str = {hash:?};\n");
    fs::write(Path::new(&out).join("console.rs"), table)
}

/// The text of the page's import map, between its tags.
fn import_map_of(page: &[u8]) -> io::Result<&str> {
    let page = std::str::from_utf8(page).map_err(io::Error::other)?;
    let inside =
        page.split_once("<script type=\"importmap\">").and_then(|(_, rest)| rest.split_once("</script>"));
    inside.map(|(map, _)| map).ok_or_else(|| io::Error::other("console/index.html has no import map"))
}
