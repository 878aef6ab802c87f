# lab.ranks_*: runs and studies that ranks of MPI share.
find_package(CLI11 REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_executable(lab_ranks_test lab/ranks_test.cc ring/main.cc)
target_link_libraries(lab_ranks_test PRIVATE locus_lab_mpi locus_build
  fmt::fmt GTest::gtest)
foreach(ranks IN ITEMS 2 3 4)
  add_test(NAME lab.ranks_${ranks}
    COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} $<TARGET_FILE:lab_ranks_test>)
  list(APPEND lab_ranks_tests lab.ranks_${ranks})
endforeach()

# The program as it is where there is no MPI: it must refuse to run n times.
add_executable(compare_without_mpi ${PROJECT_SOURCE_DIR}/lab/main.cc
  ${PROJECT_SOURCE_DIR}/cli/complain.cc
  ${PROJECT_SOURCE_DIR}/lab/ranks/launch_none.cc)
target_link_libraries(compare_without_mpi PRIVATE locus_study locus_build
  fmt::fmt CLI11::CLI11)

foreach(suite IN ITEMS Study Resume Failures Usage)
  add_test(NAME lab.ranks_${suite} COMMAND Python3::Interpreter -B
    ${CMAKE_CURRENT_LIST_DIR}/ranks_test.py $<TARGET_FILE:locus_compare>
    $<TARGET_FILE:compare_without_mpi> ${suite})
  list(APPEND lab_ranks_tests lab.ranks_${suite})
endforeach()
set_tests_properties(${lab_ranks_tests} PROPERTIES LABELS lab TIMEOUT 300
  ENVIRONMENT "${ring_environment}")
