# The lab's model, tasks and runs; run control has its own file.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_test.cc)
list(FILTER sources EXCLUDE REGEX "/(compare_[a-z_]*|ranks)_test\\.cc$")
add_executable(lab_test ${sources})
target_link_libraries(lab_test PRIVATE locus_lab locus_build
  fmt::fmt GTest::gtest_main)
locus_precompile(lab_test ${test_headers} <torch/types.h>)
# One process for all of them: loading libtorch takes longer than most.
add_test(NAME lab.model COMMAND lab_test)
set_tests_properties(lab.model PROPERTIES LABELS lab TIMEOUT 300)
