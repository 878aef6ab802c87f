// A picture of the top of a report, down to its first figure, for documents.
//
//   node screenshot.mjs REPORT.html PICTURE.png [light|dark] [WIDTH]
import { pathToFileURL } from 'node:url';
import { launch, settled } from './browser.mjs';

const [report, picture, colorScheme = 'light', width = '1200'] = process.argv.slice(2);
if (!picture) {
  console.error('usage: node screenshot.mjs REPORT.html PICTURE.png [light|dark] [WIDTH]');
  process.exit(2);
}
const browser = await launch();
const viewport = { width: Number(width), height: 900 };
const page = await browser.newPage({ viewport, colorScheme });
await page.goto(pathToFileURL(report).href);
await settled(page);
const bottom = await page
  .locator('[data-figure="loss"]')
  .evaluate((figure) => figure.getBoundingClientRect().bottom + 16);
await page.screenshot({
  path: picture,
  fullPage: true,
  clip: { x: 0, y: 0, width: viewport.width, height: Math.ceil(bottom) },
});
await browser.close();
