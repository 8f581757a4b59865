// Verifies the format of a backup (docs/reference/files-snapshots.md) while it is read in pieces: header,
// order of chunks, chained CRC-32C and totals. A cut or damaged file fails. It does not decode the keys in
// the blocks, which `tidelock backup verify` does as well.

const HEADER_BYTES = 84;
const CHUNK_HEAD_BYTES = 12;
const PAYLOAD_BYTES_MAX = 1_183_808;
const KIND = { SHARD: 1, BLOCK: 2, SHARD_END: 3, END: 4 };

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let crc = index;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc >>> 0;
});

function crc32c(bytes, seed) {
  let crc = ~seed;
  for (let at = 0; at < bytes.length; at += 1) crc = CRC_TABLE[(crc ^ bytes[at]) & 0xff] ^ (crc >>> 8);
  return ~crc >>> 0;
}

const ascii = (bytes) => String.fromCharCode(...bytes);
const u64 = (view, at) => Number(view.getBigUint64(at, true));

/** Takes pieces with `push` and throws an Error that names the damage; `finish` gives the facts. */
export class BackupVerifier {
  #pending = new Uint8Array(0);
  #offset = 0;
  #chain = 0;
  #shard = null;
  #lastShard = -1;
  #ended = false;
  #totals = { shards: 0, blocks: 0, records: 0 };
  header = null;

  push(piece) {
    const joined = new Uint8Array(this.#pending.length + piece.length);
    joined.set(this.#pending);
    joined.set(piece, this.#pending.length);
    let used = 0;
    for (;;) {
      const taken = this.header ? this.#takeChunk(joined, used) : this.#takeHeader(joined);
      if (taken === 0) break;
      used += taken;
      this.#offset += taken;
    }
    this.#pending = joined.slice(used);
  }

  /** Call after the last piece. Returns { header, shards, blocks, records, bytes }. */
  finish() {
    if (!this.#ended) this.#fail("the file is cut short");
    return { header: this.header, ...this.#totals, bytes: this.#offset };
  }

  #fail(what) {
    throw new Error(`Not an intact backup: ${what}, at byte ${this.#offset.toLocaleString("en")}.`);
  }

  #takeHeader(bytes) {
    if (bytes.length < HEADER_BYTES) return 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
    if (ascii(bytes.subarray(0, 8)) !== "TIDEBKUP") this.#fail("it does not begin as a backup does");
    const crc = view.getUint32(80, true);
    if (crc32c(bytes.subarray(0, 80), 0) !== crc) this.#fail("the checksum of the header is wrong");
    const version = view.getUint32(8, true);
    if (version > 2) this.#fail(`its format has version ${version}, and this page knows 1 and 2`);
    this.header = {
      version,
      stale: (view.getUint32(12, true) & 1) === 1,
      cluster: uuid(bytes.subarray(16, 32)),
      id: uuid(bytes.subarray(32, 48)),
      node: u64(view, 48),
      begunUnixMs: u64(view, 56),
      shards: u64(view, 64),
      bytesAbout: u64(view, 72),
    };
    this.#chain = crc;
    return HEADER_BYTES;
  }

  #takeChunk(bytes, at) {
    if (this.#ended) {
      if (bytes.length > at) this.#fail("there are bytes after its end");
      return 0;
    }
    if (bytes.length - at < CHUNK_HEAD_BYTES) return 0;
    const head = new DataView(bytes.buffer, bytes.byteOffset + at, CHUNK_HEAD_BYTES);
    const length = head.getUint32(0, true);
    if (length > PAYLOAD_BYTES_MAX) this.#fail("the length of a chunk is wrong");
    const taken = CHUNK_HEAD_BYTES + length;
    if (bytes.length - at < taken) return 0;
    const payload = bytes.subarray(at + CHUNK_HEAD_BYTES, at + taken);
    const crc = head.getUint32(8, true);
    const computed = crc32c(payload, crc32c(bytes.subarray(at, at + 8), this.#chain));
    if (computed !== crc) this.#fail("the checksum of a chunk is wrong");
    this.#chain = crc;
    this.#checkChunk(head.getUint32(4, true), payload, taken);
    return taken;
  }

  #checkChunk(kind, payload, taken) {
    const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
    if (kind === KIND.SHARD) this.#beginShard(u64(view, 0));
    else if (!this.#shard && kind !== KIND.END) this.#fail("a chunk is outside of a shard");
    else if (kind === KIND.BLOCK) this.#shard.blocks += 1;
    else if (kind === KIND.SHARD_END) this.#endShard(u64(view, 0), u64(view, 16));
    else if (kind === KIND.END) this.#end(view, payload, taken);
    else this.#fail(`a chunk has the unknown kind ${kind}`);
  }

  #beginShard(number) {
    if (this.#shard) this.#fail("a shard begins within another one");
    if (number <= this.#lastShard) this.#fail("the shards are out of order");
    this.#shard = { blocks: 0 };
    this.#lastShard = number;
  }

  #endShard(blocks, records) {
    if (blocks !== this.#shard.blocks) this.#fail("a shard has another number of blocks than it says");
    this.#totals.shards += 1;
    this.#totals.blocks += blocks;
    this.#totals.records += records;
    this.#shard = null;
  }

  #end(view, payload, taken) {
    const said = [0, 8, 16, 24].map((place) => u64(view, place));
    const { shards, blocks, records } = this.#totals;
    const found = [shards, blocks, records, this.#offset + taken];
    if (this.#shard || said.some((number, at) => number !== found[at])) {
      this.#fail("its totals differ from what it holds");
    }
    if (shards !== this.header.shards) this.#fail("it has another number of shards than its header says");
    if (ascii(payload.subarray(32, 40)) !== "BKUPDONE") this.#fail("its end is malformed");
    this.#ended = true;
  }
}

function uuid(bytes) {
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
