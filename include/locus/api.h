// What a shared library of Locus exports: exactly what public headers declare.
//
// Everything is compiled with -fvisibility=hidden. A public header opens its
// namespace as `namespace LOCUS_API locus {`, which makes what that body
// declares visible; bodies in sources and private headers add nothing to it.
#ifndef LOCUS_API_H_
#define LOCUS_API_H_

#if defined(__GNUC__)
#define LOCUS_API [[gnu::visibility("default")]]
#else
#define LOCUS_API
#endif

#endif  // LOCUS_API_H_
