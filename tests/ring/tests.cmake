# ring.*: ring attention under mpirun, on 1 to 7 ranks.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_executable(ring_test ring/main.cc ring/encodings_test.cc ring/group_test.cc
  ring/operands_test.cc ring/options_test.cc)
target_link_libraries(ring_test PRIVATE locus_ring locus_build
  fmt::fmt GTest::gtest)
target_include_directories(ring_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
locus_precompile(ring_test ${test_headers})

# Open MPI refuses root and more ranks than cores unless told otherwise. Ranks
# that wait leave the core to others.
set(ring_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1)
foreach(ranks IN ITEMS 1 2 3 4 7)
  # Up to four ranks each operand by itself and each pair, beyond all at once.
  set(filter *)
  if(ranks GREATER 4)
    set(filter -*EveryOperand*:RingOperandsTest.Pairs)
  endif()
  add_test(NAME ring.ranks_${ranks}
    COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} $<TARGET_FILE:ring_test>
      --gtest_filter=${filter})
  list(APPEND ring_tests ring.ranks_${ranks})
endforeach()

# The program: its own commands, failures, limits of memory, several hosts.
if(TARGET locus_ring_cli)
  foreach(name IN ITEMS cli failures memory hosts)
    add_test(NAME ring.${name} COMMAND Python3::Interpreter -B
      ${CMAKE_CURRENT_LIST_DIR}/${name}_test.py $<TARGET_FILE:locus_ring_cli>)
    list(APPEND ring_tests ring.${name})
  endforeach()
  set_tests_properties(ring.hosts PROPERTIES SKIP_RETURN_CODE 77)
endif()
set_tests_properties(${ring_tests} PROPERTIES LABELS ring TIMEOUT 300
  ENVIRONMENT "${ring_environment}")
