# models.*: the tool, the page, the golden values and the fuzz targets.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(models_tests ${CMAKE_CURRENT_LIST_DIR})

if(TARGET locus_cli)
  add_test(NAME models.cli COMMAND Python3::Interpreter
    ${models_tests}/cli_test.py $<TARGET_FILE:locus_cli>)
  add_test(NAME models.docs COMMAND Python3::Interpreter
    ${models_tests}/docs_table.py ${PROJECT_SOURCE_DIR}/docs/models.md
    $<TARGET_FILE:locus_cli>)
  set_tests_properties(models.cli models.docs PROPERTIES LABELS models)
endif()

# Need the environment of the Python package, which has transformers.
if(LOCUS_PYTHON)
  add_test(NAME models.keys COMMAND ${Python_EXECUTABLE} -B
    ${PROJECT_SOURCE_DIR}/tools/model_keys.py check)
  add_test(NAME models.types COMMAND ${Python_EXECUTABLE} -B
    ${PROJECT_SOURCE_DIR}/tools/config_sweep.py
    --check ${PROJECT_SOURCE_DIR}/docs/model-types.md)
  set_tests_properties(models.keys models.types PROPERTIES LABELS models TIMEOUT 600)
  set_tests_properties(models.types PROPERTIES
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python")
  add_test(NAME models.golden COMMAND ${Python_EXECUTABLE} -B
    ${PROJECT_SOURCE_DIR}/tools/golden.py check)
  set_tests_properties(models.golden PROPERTIES LABELS models TIMEOUT 600)
  # The release of long ago goes beside the build, as a fresh machine gets it.
  add_test(NAME models.golden_legacy COMMAND ${CMAKE_COMMAND} -E env
    PYTHON=${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/golden_legacy.sh check
    ${PROJECT_BINARY_DIR}/transformers-4.35.2)
  set_tests_properties(models.golden_legacy PROPERTIES LABELS models TIMEOUT 600)
  if(TARGET locus_cli)
    add_test(NAME models.convert COMMAND ${Python_EXECUTABLE} -B
      ${models_tests}/convert_test.py $<TARGET_FILE:locus_cli>)
    set_tests_properties(models.convert PROPERTIES LABELS models TIMEOUT 600)
  endif()
endif()

# Ten seconds each, over the kept corpus and on; long runs are run.sh's second
# argument.
add_test(NAME models.fuzz COMMAND ${models_tests}/fuzz/run.sh
  ${PROJECT_BINARY_DIR}/fuzz 10)
set_tests_properties(models.fuzz PROPERTIES LABELS models PROCESSORS 2
  TIMEOUT 1800)
