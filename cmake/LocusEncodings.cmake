# locus/encodings/all.h, which includes every header of include/locus/encodings.
# The build writes it, so that adding an encoding is adding its header.
set(locus_generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/include
  ${CMAKE_CURRENT_SOURCE_DIR}/include/locus/encodings/*.h)
list(SORT headers)
list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"\n")
string(JOIN "" includes ${headers})
file(CONFIGURE OUTPUT ${locus_generated}/locus/encodings/all.h @ONLY
  CONTENT "// Every encoding. Written by cmake/LocusEncodings.cmake.
#ifndef LOCUS_ENCODINGS_ALL_H_
#define LOCUS_ENCODINGS_ALL_H_

@includes@
#endif  // LOCUS_ENCODINGS_ALL_H_
")
