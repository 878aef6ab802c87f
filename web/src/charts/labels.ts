// Names at the right end of lines, moved apart so that none covers another.
/**
 * The nearest places to `ends` (pixels, downwards) that are at least `gap` apart and inside
 * [top, bottom]: names that would overlap form a block around their mean.
 */
export function spread(ends: number[], gap: number, top: number, bottom: number): number[] {
  const order = ends.map((at, index) => ({ at, index })).sort((a, b) => a.at - b.at);
  // A block is a run of names `gap` apart; `first` is the place of its first.
  const blocks: { first: number; members: typeof order }[] = [];
  const settle = (members: typeof order) => {
    const wanted = members.reduce((sum, one, k) => sum + one.at - k * gap, 0) / members.length;
    const last = bottom - (members.length - 1) * gap;
    return { first: Math.max(top, Math.min(wanted, last)), members };
  };
  for (const one of order) {
    let block = settle([one]);
    for (;;) {
      const above = blocks[blocks.length - 1];
      if (!above || above.first + above.members.length * gap <= block.first) break;
      blocks.pop();
      block = settle([...above.members, ...block.members]);
    }
    blocks.push(block);
  }
  const places: number[] = new Array(ends.length);
  for (const { first, members } of blocks) {
    members.forEach(({ index }, k) => {
      places[index] = first + k * gap;
    });
  }
  return places;
}
