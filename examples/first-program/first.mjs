// Counts the runs of this program in a key, without losing one when several programs run at once.
//
// usage: first.mjs NODE,NODE,…

const KEY = '/v1/keys/runs';
const nodes = process.argv[2].split(',');

// Asks the next node if one is down or refuses (503).
async function request(method, body, headers) {
    for (const node of nodes) {
        const answer = await fetch(`http://${node}${KEY}`, { method, body, headers, signal: AbortSignal.timeout(4000) }).catch(() => null);
        if (answer && answer.status !== 503) return answer;
    }
    throw new Error('no node serves');
}

for (;;) {
    const read = await request('GET');
    const runs = read.ok ? Number(await read.text()) : 0;
    // The write happens only if nobody has written since the read.
    const condition = read.ok ? { 'If-Match': read.headers.get('etag') } : { 'If-None-Match': '*' };
    const written = await request('PUT', String(runs + 1), condition);
    if (written.ok) {
        console.log(`run ${runs + 1}`);
        break;
    }
    if (written.status !== 412) throw new Error(`${written.status}: ${await written.text()}`);
}
