# openmp.*: the engine on the threads of an OpenMP runtime that the program
# loads; openmp_linked.*: that it links.
find_package(OpenMP QUIET COMPONENTS CXX)
set(openmp_tests openmp)
if(OpenMP_CXX_FOUND)
  list(APPEND openmp_tests openmp_linked)
endif()
foreach(name IN LISTS openmp_tests)
  add_executable(${name}_test ${CMAKE_CURRENT_LIST_DIR}/openmp_test.cc)
  target_link_libraries(${name}_test PRIVATE locus locus_build GTest::gtest_main
    ${CMAKE_DL_LIBS})
  target_include_directories(${name}_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}.
    PROPERTIES LABELS core DISCOVERY_TIMEOUT 60)
endforeach()
if(OpenMP_CXX_FOUND)
  target_link_libraries(openmp_linked_test PRIVATE OpenMP::OpenMP_CXX)
endif()
