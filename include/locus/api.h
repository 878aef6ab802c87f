// LOCUS_API: the shared library exports exactly what public headers declare.
//
// Everything is compiled with -fvisibility=hidden. A public header opens its
// namespace as `namespace LOCUS_API locus {`, which exports the declarations in
// that block; sources and private headers open it without the attribute.
#ifndef LOCUS_API_H_
#define LOCUS_API_H_

#if defined(__GNUC__)
#define LOCUS_API [[gnu::visibility("default")]]
#else
#define LOCUS_API
#endif

#endif  // LOCUS_API_H_
