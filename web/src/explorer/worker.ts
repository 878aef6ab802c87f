// Runs in a worker, behind emscripten's script: answers one question after another.
export type ToWorker = { module: WebAssembly.Module } | { id: number; text: string };
export interface FromWorker {
  id: number;
  text: string;
  numbers: Float64Array;
}

interface Module {
  HEAPU8: Uint8Array;
  HEAPU32: Uint32Array;
  HEAPF64: Float64Array;
  _malloc(size: number): number;
  _free(at: number): void;
  _locus_ask(text: number, size: number): number;
}
declare function LocusCore(options: object): Promise<Module>;

let core: Promise<Module>;

function start(module: WebAssembly.Module): Promise<Module> {
  return LocusCore({
    instantiateWasm: (
      imports: WebAssembly.Imports,
      ready: (made: WebAssembly.Instance) => void,
    ) => {
      void WebAssembly.instantiate(module, imports).then(ready);
      return {};
    },
  });
}

async function answer({ id, text }: { id: number; text: string }): Promise<void> {
  const made = await core;
  const bytes = new TextEncoder().encode(text);
  const at = made._malloc(bytes.length);
  const said = (sentence: string) =>
    postMessage({ id, text: JSON.stringify({ error: sentence }), numbers: new Float64Array() });
  if (at === 0) {
    said('this is larger than the memory that the browser gives a page');
    return;
  }
  made.HEAPU8.set(bytes, at);
  try {
    const places = made._locus_ask(at, bytes.length) >>> 2;
    const [from, size, first, count] = made.HEAPU32.slice(places, places + 4) as unknown as [
      number,
      number,
      number,
      number,
    ];
    const reply = new TextDecoder().decode(made.HEAPU8.slice(from, from + size));
    const numbers = made.HEAPF64.slice(first >>> 3, (first >>> 3) + count);
    (postMessage as (message: FromWorker, transfer: Transferable[]) => void)(
      { id, text: reply, numbers },
      [numbers.buffer],
    );
  } catch (error) {
    // Only the stack or the memory can end here: a fresh core for what comes next.
    said(`the core stopped: ${error instanceof Error ? error.message : String(error)}`);
  }
  made._free(at);
}

self.onmessage = ({ data }: MessageEvent<ToWorker>) => {
  if ('module' in data) core = start(data.module);
  else void answer(data);
};
