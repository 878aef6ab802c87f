// The look of the box that tells a mark's values.
export const TIP = { lineHeight: 1.25, stroke: 'var(--line)' };
