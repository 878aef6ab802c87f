// Tables as the lab trained them (web/data/trained.json): what they fit, and the question that
// asks for them.

/** The encoding's parameters in the first layer of a small model. */
export interface TrainedTable {
  encoding: string;
  options: Record<string, string>;
  shared_by_layers: boolean;
  loss: number;
  params: { name: string; shape: number[]; values: number[] }[];
}

export interface TrainedFile {
  corpus: { name: string };
  model: { layers: number; heads: number; dim: number; length: number; steps: number };
  loss_without_position: number;
  encodings: TrainedTable[];
}

export interface Sizes {
  heads: number;
  dim: number;
  length: number;
}

export class Trained {
  private readonly tables: Map<string, TrainedTable>;

  constructor(private readonly file: TrainedFile) {
    this.tables = new Map(file.encodings.map((table) => [table.encoding, table]));
  }

  of(encoding: string): TrainedTable | undefined {
    return this.tables.get(encoding);
  }

  /** The sizes that all of them have. */
  get sizes(): Sizes {
    const { heads, dim, length } = this.file.model;
    return { heads, dim, length };
  }

  fits(sizes: Sizes): boolean {
    const mine = this.sizes;
    return (['heads', 'dim', 'length'] as const).every((name) => mine[name] === sizes[name]);
  }

  /** What asks the core for an encoding as trained, or as it is where it has no parameters. */
  question(encoding: string): object {
    const table = this.of(encoding);
    return {
      encoding,
      ...this.sizes,
      ...(table ? { options: table.options, trained: true } : {}),
    };
  }

  /** How it was trained, in a sentence, and what that brought. */
  story(table: TrainedTable): string {
    const { model, corpus, loss_without_position: without } = this.file;
    const layer = table.shared_by_layers ? '' : ', in its first layer';
    return `Trained: the parameters of a small decoder (${model.layers} layers, ${model.heads} heads of ${model.dim} channels, ${model.length} tokens${layer}) after ${model.steps} steps on English text (${corpus.name}). Its loss is ${table.loss.toFixed(2)} nats per byte; that of the same model without positions is ${without.toFixed(2)}. A decoder never sees later keys: what it has for them is untrained.`;
  }
}
