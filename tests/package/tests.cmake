# package.*: install, then build and run a consumer outside the tree, each way.
set(package_dir ${CMAKE_CURRENT_LIST_DIR})
set(package_work ${CMAKE_BINARY_DIR}/package)
set(package_prefix ${package_work}/prefix)
# Builds of the library stand beside the build folder: the compiler's cache sees
# paths relative to them, so only there does it find what is compiled already.
set(package_shared ${CMAKE_BINARY_DIR}-shared)

add_test(NAME package.install COMMAND
  ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --prefix ${package_prefix})
set_tests_properties(package.install PROPERTIES FIXTURES_SETUP package_installed)

# Builds from scratch compile the same files with the same flags once more.
set(package_launcher -DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
  -DCMAKE_BUILD_TYPE=Release)

# A second build of the library, shared.
add_test(NAME package.install_shared COMMAND ${CMAKE_CTEST_COMMAND}
  --build-and-test ${PROJECT_SOURCE_DIR} ${package_shared}
  --build-generator ${CMAKE_GENERATOR} --build-target install
  --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    ${package_launcher} -DBUILD_SHARED_LIBS=ON -DLOCUS_TESTS=OFF
    -DLOCUS_CLI=OFF -DLOCUS_BENCH=OFF -DCMAKE_INSTALL_PREFIX=${package_shared}/prefix)
set_tests_properties(package.install_shared PROPERTIES
  FIXTURES_SETUP package_installed_shared)

# locus_consumer(name fixture source-folder cmake options...)
function(locus_consumer name fixture folder)
  add_test(NAME package.${name} COMMAND ${CMAKE_CTEST_COMMAND}
    --build-and-test ${package_dir}/${folder} ${CMAKE_BINARY_DIR}-${name}
    --build-generator ${CMAKE_GENERATOR}
    --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} ${ARGN}
    --test-command ${CMAKE_BINARY_DIR}-${name}/consumer)
  set_tests_properties(package.${name} PROPERTIES
    FIXTURES_REQUIRED "${fixture}"
    PASS_REGULAR_EXPRESSION "rope ${PROJECT_VERSION} 0\n")
endfunction()
# Where there is no MPI: whoever does not ask for the ring does not need it.
locus_consumer(find_package package_installed find_package
  -DCMAKE_PREFIX_PATH=${package_prefix} -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
# Nor do users of the shared library need what it is made of.
locus_consumer(find_package_shared package_installed_shared find_package
  -DCMAKE_PREFIX_PATH=${package_shared}/prefix
  -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON
  -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
locus_consumer(add_subdirectory "" add_subdirectory
  ${package_launcher} -DLOCUS_SOURCE=${PROJECT_SOURCE_DIR})

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME package.symbols COMMAND Python3::Interpreter
  ${package_dir}/symbols.py ${package_shared}/prefix)
set_tests_properties(package.symbols PROPERTIES
  FIXTURES_REQUIRED package_installed_shared)

# Where the system has no third-party libraries they are fetched and built. Here
# the sources come from Debian instead of the network, by CMake's overrides; what
# is built are these libraries and two rooms that use them.
add_test(NAME package.fetched COMMAND ${package_dir}/fetched.sh
  ${PROJECT_SOURCE_DIR} ${package_work}/fetched ${CMAKE_CXX_COMPILER})
set_tests_properties(package.fetched PROPERTIES TIMEOUT 900)

# The library for other systems (docs/platforms.md): tests of NEON run under
# qemu-user; all of them by tools/cross.sh. For Windows the sources are compiled
# that ask the system for something.
set(package_models CMakeFiles/locus_models.dir/src/models)
add_test(NAME package.aarch64 COMMAND ${CMAKE_COMMAND} -E env
  BUILD=${PROJECT_BINARY_DIR}/aarch64 TARGETS=kernels_test
  ${PROJECT_SOURCE_DIR}/tools/cross.sh aarch64 -R
  "FusedAttentionTest|KvCacheTest|DecodeTest|ShortTest|RowsTest|ConvertTest")
add_test(NAME package.windows COMMAND ${CMAKE_COMMAND} -E env
  BUILD=${PROJECT_BINARY_DIR}/windows "TARGETS=locus_core ${package_models}/mapped_file.cc.obj ${package_models}/read_file.cc.obj"
  ${PROJECT_SOURCE_DIR}/tools/cross.sh windows)
set_tests_properties(package.aarch64 package.windows PROPERTIES
  PROCESSORS 2 TIMEOUT 1800 COST 200 RESOURCE_LOCK cross)
set_tests_properties(package.aarch64 PROPERTIES
  PASS_REGULAR_EXPRESSION "100% tests passed, 0 tests failed out of [1-9][0-9]+")

# locus_refusal(name fixture prefix sentence cmake options...): the component
# ring is asked for where it cannot be had.
function(locus_refusal name fixture prefix sentence)
  add_test(NAME package.${name} COMMAND ${CMAKE_COMMAND} --fresh
    -S ${package_dir}/find_ring -B ${package_work}/${name} -G ${CMAKE_GENERATOR}
    -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_PREFIX_PATH=${prefix} ${ARGN})
  set_tests_properties(package.${name} PROPERTIES
    FIXTURES_REQUIRED "${fixture}" PASS_REGULAR_EXPRESSION "${sentence}")
endfunction()
locus_refusal(no_ring package_installed_shared ${package_shared}/prefix
  "was installed without the ring")
if(LOCUS_RING)
  locus_consumer(find_ring package_installed find_ring
    -DCMAKE_PREFIX_PATH=${package_prefix})
  set_tests_properties(package.find_ring PROPERTIES
    ENVIRONMENT "${ring_environment}")
  locus_refusal(no_mpi package_installed ${package_prefix}
    "component ring needs" -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
endif()

add_test(NAME package.licence COMMAND ${CMAKE_COMMAND} -E compare_files
  ${PROJECT_SOURCE_DIR}/LICENSE ${package_prefix}/${CMAKE_INSTALL_DOCDIR}/LICENSE)
set_tests_properties(package.licence PROPERTIES
  FIXTURES_REQUIRED package_installed)

add_test(NAME package.pkg_config COMMAND
  ${package_dir}/pkg_config/build.sh ${CMAKE_CXX_COMPILER}
  ${package_dir}/consumer.cc ${package_prefix} ${package_work}/pkg_config_consumer)
set_tests_properties(package.pkg_config PROPERTIES
  FIXTURES_REQUIRED package_installed
  PASS_REGULAR_EXPRESSION "rope ${PROJECT_VERSION} 0\n")

add_test(NAME package.headers COMMAND
  ${package_dir}/headers.sh ${CMAKE_CXX_COMPILER} ${package_prefix})
set_tests_properties(package.headers PROPERTIES
  FIXTURES_REQUIRED package_installed)
