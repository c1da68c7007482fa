// callers SECONDS: sorts and parses, compiled by the runtime.
const end = Date.now() + 1000 * Number(process.argv[2]);

function churn() {
    const numbers = Array.from({ length: 300 }, (_, i) => (i * 7919) % 301);
    return JSON.parse(JSON.stringify({ numbers })).numbers.sort((a, b) => a - b).length;
}

function descend(frames) {
    return frames === 0 ? churn() : descend(frames - 1) + 1;
}

while (Date.now() < end) descend(20);
