# find_package(kiln): the libraries as kiln::kiln (compiler and runtime), kiln::rt and kiln::rt_static (the runtime alone),
# the command as kiln::command.
include(${CMAKE_CURRENT_LIST_DIR}/kilnTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/kilnModels.cmake)
