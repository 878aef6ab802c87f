# Third-party libraries: those of the system where it has them, otherwise fetched
# at a pinned version and hash and linked into what is built. To build them from
# sources at hand: -DFETCHCONTENT_SOURCE_DIR_FMT=FOLDER, and likewise _HWY,
# _NLOHMANN_JSON and _CLI11. To refuse downloads: -DFETCHCONTENT_FULLY_DISCONNECTED=ON.
include(FetchContent)

FetchContent_Declare(fmt SYSTEM
  URL https://github.com/fmtlib/fmt/archive/9.1.0.tar.gz
  URL_HASH SHA256=5dea48d1fcddc3ec571ce2058e13910a0d4a6bab4cc09a809d8b1dd1c88ae6f2
  FIND_PACKAGE_ARGS)
FetchContent_Declare(hwy SYSTEM
  URL https://github.com/google/highway/archive/refs/tags/1.0.3.tar.gz
  URL_HASH SHA256=566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e
  FIND_PACKAGE_ARGS)
FetchContent_Declare(nlohmann_json SYSTEM
  URL https://github.com/nlohmann/json/releases/download/v3.11.2/json.tar.xz
  URL_HASH SHA256=8c4b26bf4b422252e13f332bc5e388ec0ab5c3443d24399acb675e68278d341f
  FIND_PACKAGE_ARGS)
FetchContent_Declare(CLI11 SYSTEM
  URL https://github.com/CLIUtils/CLI11/archive/v2.1.2.tar.gz
  URL_HASH SHA256=26291377e892ba0e5b4972cdfd4a2ab3bf53af8dac1f4ea8fe0d1376b625c8cb
  FIND_PACKAGE_ARGS)

# locus_dependencies(names...): makes fmt::fmt, hwy::hwy, ... available. What is
# fetched is static and position independent, and is not installed by itself: the
# library takes its objects in (see locus_fetched).
function(locus_dependencies)
  set(BUILD_SHARED_LIBS OFF)
  set(BUILD_TESTING OFF)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  set(FMT_INSTALL OFF)
  set(HWY_ENABLE_CONTRIB OFF)
  set(HWY_ENABLE_EXAMPLES OFF)
  set(HWY_ENABLE_INSTALL OFF)
  set(HWY_ENABLE_TESTS OFF)
  set(HWY_FORCE_STATIC_LIBS ON)
  set(JSON_BuildTests OFF)
  set(CLI11_PRECOMPILED OFF)
  set(CLI11_BUILD_EXAMPLES OFF)
  FetchContent_MakeAvailable(${ARGN})
  if(TARGET hwy AND NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
  set(hwy_VERSION "${hwy_VERSION}" PARENT_SCOPE)
  foreach(name IN LISTS ARGN)
    set(where "the system, ${${name}_DIR}")
    string(TOLOWER ${name} lower)
    if(DEFINED ${lower}_SOURCE_DIR)
      set(where "sources, ${${lower}_SOURCE_DIR}")
    endif()
    message(STATUS "Locus: ${name} of ${where}")
  endforeach()
endfunction()

# locus_fetched(out library): whether a library is built here from its sources.
function(locus_fetched out library)
  get_target_property(imported ${library} IMPORTED)
  if(imported)
    set(${out} FALSE PARENT_SCOPE)
  else()
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()
