# Flags shared by everything built here. Never installed.
add_library(locus_build INTERFACE)
target_compile_features(locus_build INTERFACE cxx_std_20)
target_compile_options(locus_build INTERFACE -Wall -Wextra -Wconversion
  # g++ 12 sees overflows in fmt's buffers at -O3 that are not there.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>
  $<$<BOOL:${LOCUS_WERROR}>:-Werror>)
target_include_directories(locus_build INTERFACE
  ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
if(LOCUS_SANITIZE)
  target_compile_options(locus_build INTERFACE
    -fsanitize=${LOCUS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(locus_build INTERFACE -fsanitize=${LOCUS_SANITIZE})
endif()

# locus_room(name directory): one object library per room, from every .cc below it
# but those of other systems (src/core/posix, src/core/windows).
function(locus_room name directory)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${directory}/*.cc)
  set(foreign windows)
  if(WIN32)
    set(foreign posix)
  endif()
  list(FILTER sources EXCLUDE REGEX "/src/core/${foreign}/")
  add_library(locus_${name} OBJECT ${sources})
  target_link_libraries(locus_${name} PRIVATE locus_build fmt::fmt)
  set_target_properties(locus_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # What sanitizers compile is of use to no other build.
  if(LOCUS_SANITIZE)
    locus_precompile(locus_${name} <algorithm> <cmath> <functional> <memory>
      <optional> <span> <string> <vector> <fmt/format.h>)
  endif()
endfunction()

# locus_precompile(target headers...): parses heavy headers once for a target's
# sources. Not for the library itself outside sanitizers: its objects come from the
# compiler's cache when packages and wheels build it again, which a precompiled
# header prevents.
function(locus_precompile target)
  if(LOCUS_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # So that the compiler's cache keeps what is compiled with them.
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
      "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endfunction()
